//! Shared memory, and mechanisms that know nothing of it.

use anyhow::{Context, Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::installed::{CUDA_CHECKPOINT, SELF_TESTS, StasisHost};

use super::{members, suspended, toggle};

type Case = fn(&StasisHost, &Bundle<'_>) -> Result<()>;

const CASES: [(&str, Case); 4] = [
    ("left suspended", a_suspended_job_is_saved_and_stays_so),
    ("tried again", what_has_not_come_back_whole_is_resumed_later),
    ("one process", none_of_them_goes_on_alone),
    ("untried", a_driver_that_was_not_tried_is_whatever_they_hold),
];

/// After each case the suspended job is resumed, and both count on.
pub(super) fn all_cases(stasis: &StasisHost) -> Result<()> {
    let job = suspended(stasis, "crossings")?;
    for (count, (name, case)) in (102..).zip(CASES) {
        case(stasis, &job).context(name)?;
        toggle(stasis, &job).context(name)?;
        let answer = stasis.ask(10001)?.unwrap_or_default();
        ensure!(answer == format!("{count} {count}"), "{name}: {answer}");
        super::nothing_is_left(stasis).context(name)?;
        toggle(stasis, &job)?;
    }
    job.delete()?;
    job.restore("in-part").context("in part")?;
    ensure!(stasis.ask(10001)?.as_deref() == Some("103 103"));
    job.delete()
}

fn a_suspended_job_is_saved_and_stays_so(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    job.checkpoint("suspended", &["--leave-running"])?;
    let [_, owner, _] = members(stasis)?;
    let state = [CUDA_CHECKPOINT, "--get-state", "--pid", &owner];
    ensure!(stasis.run_for_text(&state)? == "checkpointed");
    Ok(())
}

/// The importer has its GPU again meanwhile, and waits for the owner.
fn what_has_not_come_back_whole_is_resumed_later(
    stasis: &StasisHost,
    job: &Bundle<'_>,
) -> Result<()> {
    for _ in 1..=2 {
        stasis.add_order("restore crossings-0 error:999 3")?;
        let failed = toggle(stasis, job).err().context("it has come back")?;
        assert_contains(&format!("{failed:#}"), &["999"]);
        ensure!(stasis.take_order("restore", "crossings-0")? == 0);
        job.checkpoint("in-part", &["--leave-running"])?;
    }
    Ok(())
}

/// The importer would compute without the memory.
fn none_of_them_goes_on_alone(stasis: &StasisHost, _: &Bundle<'_>) -> Result<()> {
    let [_, owner, importer] = members(stasis)?;
    for pid in [&owner, &importer] {
        let said = stasis.fails(&[CUDA_CHECKPOINT, "--toggle", "--pid", pid])?;
        assert_contains(
            &said,
            &["[shared-memory]", "checkpointed now", "--container"],
        );
    }
    Ok(())
}

/// Nothing of ours copies so little, and no guess finds it.
fn a_driver_that_was_not_tried_is_whatever_they_hold(
    stasis: &StasisHost,
    job: &Bundle<'_>,
) -> Result<()> {
    toggle(stasis, job)?;
    stasis.set("runc", "gpu_checkpoint.minimum_mib = 256\n")?;
    stasis.run(&["rm", "-r", SELF_TESTS])?;
    job.checkpoint("untried", &["--leave-running"])?;
    stasis.set("runc", "")?;
    toggle(stasis, job)
}

/// Others than it had, and with other numbers in the container.
pub(super) fn restored_onto_other_gpus(stasis: &StasisHost) -> Result<()> {
    stasis.inject("gpus 4")?;
    let job = Bundle::make(stasis, "moved", &["/bin/sharing", "10001", "2"])?;
    job.give(&[0, 1])?;
    job.comes_up(10001, "101 101")?;
    job.checkpoint("moved", &[])?;
    job.delete()?;
    job.give(&[2, 3])?;
    job.restore("moved")?;
    ensure!(stasis.ask(10001)?.as_deref() == Some("102 102"));
    super::nothing_is_left(stasis)?;
    stasis.inject("gpus 2")?;
    job.delete()
}
