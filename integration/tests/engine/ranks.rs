//! Processes that wait for each other on their GPUs, as the ranks of a distributed training do:
//! they can only be locked together.

mod crossings;
mod given_back;

use anyhow::{Context, Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{CUDA_CHECKPOINT, SELF_TESTS, StasisHost};
use stasis_integration::on_hosts;

/// On a busy machine the ranks need longer to meet than a lock's default deadline.
const PATIENT: &str = "deadlines.lock_ms = 60000\n";

on_hosts!(all_cases: sid, trixie_v2);

fn all_cases(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::with_containerd(kind)?;
    stasis.inject("gpus 2")?;
    stasis.set("runc", PATIENT)?;
    ranks_go_on_through_five_cycles(stasis, "in-step", &["3"])?;
    ranks_go_on_through_five_cycles(stasis, "ahead", &["3", "ahead=15"])?;
    processes_share_their_memory_through_five_cycles(stasis, "kept", &[])?;
    processes_share_their_memory_through_five_cycles(stasis, "released", &["released"])?;
    who_has_imported_memory_may_end_meanwhile(stasis)?;
    whose_memory_was_imported_may_not(stasis)?;
    crossings::all_cases(stasis)?;
    crossings::restored_onto_other_gpus(stasis)?;
    given_back::all_cases(stasis)?;
    what_cannot_be_shared_again_is_refused(stasis)?;
    what_is_no_longer_known_at_the_lock_is_refused(stasis)?;
    processes_with_memory_of_their_own_are_not(stasis)
}

/// Three ranks on two GPUs that meet all the time: the meetings go on, each with all ranks.
fn ranks_go_on_through_five_cycles(stasis: &StasisHost, name: &str, how: &[&str]) -> Result<()> {
    let command = [&["/bin/ranks", "10000"], how].concat();
    let ranks = Bundle::make(stasis, name, &command)?;
    ranks.give(&[0, 1])?;
    ranks.run()?;
    let mut met = meetings(&stasis.ask_until_up(10000)?)?;
    for cycle in 1..=5 {
        ranks.checkpoint("image", &["--leave-running"])?;
        let after = meetings(&stasis.ask(10000)?.unwrap_or_default()).context("left running")?;
        assert!(after > met, "cycle {cycle}: {after} after {met}");
        ranks.checkpoint("image", &[])?;
        ranks.restore("image")?;
        let restored = meetings(&stasis.ask(10000)?.unwrap_or_default()).context("restored")?;
        assert!(restored > after, "cycle {cycle}: {restored} after {after}");
        met = restored;
    }
    ranks.delete()
}

/// The importer reads the owner's count in the same memory, on one GPU or another.
fn processes_share_their_memory_through_five_cycles(
    stasis: &StasisHost,
    id: &str,
    options: &[&str],
) -> Result<()> {
    let command = [&["/bin/sharing", "10001", "2"], options].concat();
    let job = Bundle::make(stasis, id, &command)?;
    job.give(&[0, 1])?;
    job.run()?;
    let mut before = stasis.ask_until_up(10001)?;
    for _ in 1..=5 {
        job.checkpoint("image", &["--leave-running"])?;
        let notes = stasis.operation("checkpoint")?["notes"].to_string();
        assert_contains(
            &notes,
            &["1 allocations of GPU memory that processes share"],
        );
        before = goes_on(stasis, &before)?;
        nothing_is_left(stasis)?;
        job.checkpoint("image", &[])?;
        job.restore("image")?;
        before = goes_on(stasis, &before)?;
        toggle(stasis, &job)?;
        toggle(stasis, &job)?;
        before = goes_on(stasis, &before)?;
        nothing_is_left(stasis)?;
        // The image has the imports that were given up at the suspend.
        toggle(stasis, &job)?;
        job.checkpoint("image", &[])?;
        job.restore("image")?;
        before = goes_on(stasis, &before)?;
    }
    job.delete()
}

fn who_has_imported_memory_may_end_meanwhile(stasis: &StasisHost) -> Result<()> {
    let job = suspended(stasis, "importer")?;
    stasis.run(&["kill", "-9", &members(stasis)?[2]])?;
    // The rest of it can be saved as it is.
    job.checkpoint("suspended", &["--leave-running"])?;
    toggle(stasis, &job)?;
    ensure!(stasis.ask(10001)?.as_deref() == Some("102 ended"));
    nothing_is_left(stasis)?;
    job.delete()
}

/// The importer would compute with memory that no longer exists.
fn whose_memory_was_imported_may_not(stasis: &StasisHost) -> Result<()> {
    let job = suspended(stasis, "owner")?;
    let [_, owner, importer] = members(stasis)?;
    stasis.run(&["kill", "-9", &owner])?;
    let refused = toggle(stasis, &job).err().context("they go on")?;
    let message = format!("{refused:#}");
    assert_contains(
        &message,
        &["a process has ended whose GPU memory", &importer],
    );
    let state = [CUDA_CHECKPOINT, "--get-state", "-p", &importer];
    ensure!(stasis.run_for_text(&state)? == "locked");
    job.delete()
}

fn suspended<'l>(stasis: &'l StasisHost, id: &str) -> Result<Bundle<'l>> {
    let job = Bundle::make(stasis, id, &["/bin/sharing", "10001", "2"])?;
    job.give(&[0, 1])?;
    job.comes_up(10001, "101 101")?;
    toggle(stasis, &job)?;
    Ok(job)
}

/// Returns pids in the host: the parent's, the owner's and the importer's.
fn members(stasis: &StasisHost) -> Result<[String; 3]> {
    let script = "grep -lx sharing /proc/[0-9]*/comm | cut -d/ -f3 | sort -n";
    let found = stasis.run_for_text(&["sh", "-c", script])?;
    let found: Vec<String> = found.lines().map(str::to_owned).collect();
    found.try_into().ok().context("not three processes")
}

fn toggle(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let arguments = ["--toggle", "--container", &job.id, "--root", ROOT];
    let arguments = [&[CUDA_CHECKPOINT], &arguments[..]].concat();
    stasis.run(&arguments).map(drop)
}

/// The harm that the survey prevents: the driver saves such a job and cannot restore it.
fn what_cannot_be_shared_again_is_refused(stasis: &StasisHost) -> Result<()> {
    let kinds = [
        (
            "large",
            &["512"][..],
            "1 allocations of other processes' GPU memory imported, of which one has 512 MiB or more",
            "GPU memory that it shares with others is not there again",
        ),
        (
            "legacy",
            &["2", "legacy"],
            "1 allocations of other processes opened by cudaIpcOpenMemHandle (2 MiB",
            "have to be killed",
        ),
    ];
    for (id, options, evidence, lost) in kinds {
        let command = [&["/bin/sharing", "10001"], options].concat();
        let job = Bundle::make(stasis, id, &command)?;
        job.give(&[0, 1])?;
        job.run()?;
        let before = stasis.ask_until_up(10001)?;
        let message = job.checkpoint_fails("refused", &[])?;
        assert_contains(
            &message,
            &[
                "nccl-p2p",
                "(sharing): it has",
                evidence,
                "NCCL_P2P_DISABLE=1",
            ],
        );
        goes_on(stasis, &before)?;
        nothing_is_left(stasis)?;
        stasis.set("runc", "preflight.allow = [\"nccl-p2p\"]\n")?;
        let message = job.checkpoint_fails("allowed", &["--leave-running"])?;
        assert_contains(&message, &[lost]);
        let notes = stasis.operation("checkpoint")?["notes"].to_string();
        assert_contains(&notes, &["allowed nccl-p2p", evidence]);
        stasis.set("runc", "")?;
        job.delete()?;
    }
    Ok(())
}

/// `doctor` of another version tries the driver again just then.
fn what_is_no_longer_known_at_the_lock_is_refused(stasis: &StasisHost) -> Result<()> {
    let job = Bundle::make(stasis, "unknown", &["/bin/sharing", "10001", "2"])?;
    job.give(&[0, 1])?;
    job.run()?;
    let before = stasis.ask_until_up(10001)?;
    stasis.hold_driver("lock *", "step")?;
    let checkpoint = job.begin_checkpoint("unknown", &["--leave-running"])?;
    stasis.until_driver_is_called()?;
    stasis.run(&["rm", "-r", SELF_TESTS])?;
    stasis.let_driver_go("step")?;
    let output = checkpoint.wait_with_output()?;
    stasis.inject("gpus 2")?;
    ensure!(!output.status.success(), "it was made");
    let failed = stasis.operation("checkpoint")?.to_string();
    assert_contains(&failed, &["build of libcuda", "can no longer be read"]);
    goes_on(stasis, &before)?;
    nothing_is_left(stasis)?;
    job.delete()
}

/// No handle can be made of this memory, as of imported memory.
fn processes_with_memory_of_their_own_are_not(stasis: &StasisHost) -> Result<()> {
    let job = Bundle::make(stasis, "own", &["/bin/sharing", "10001", "2", "own"])?;
    job.give(&[0, 1])?;
    job.run()?;
    let before = stasis.ask_until_up(10001)?;
    job.checkpoint("image", &[])?;
    job.restore("image")?;
    goes_on(stasis, &before)?;
    job.delete()
}

/// Checks that both count on: each answer is one more. Returns this one.
fn goes_on(stasis: &StasisHost, before: &str) -> Result<String> {
    let counts = |answer: &str| -> Vec<u64> {
        let words = answer.split_whitespace();
        words.filter_map(|word| word.parse().ok()).collect()
    };
    let now = stasis.ask(10001)?.context("the workload is silent")?;
    let next: Vec<u64> = counts(before).iter().map(|count| count + 1).collect();
    ensure!(
        !next.is_empty() && counts(&now) == next,
        "{now} after {before}"
    );
    Ok(now)
}

/// Checks that no code of ours is left, and no record of it.
pub(crate) fn nothing_is_left(stasis: &StasisHost) -> Result<()> {
    let anonymous = "cat $(grep -lx sharing /proc/[0-9]*/comm | sed s/comm/maps/) | \
                     grep -E ' r-xp 00000000 00:00 0 *$' || true";
    let found = stasis.run(&["sh", "-c", anonymous])?.stdout;
    let found = String::from_utf8_lossy(&found);
    ensure!(found.trim().is_empty(), "code is left: {found}");
    let records = stasis.records()?;
    ensure!(records.is_empty(), "left: {records}");
    Ok(())
}

/// Returns the meetings of an answer "ok RANKS MEETINGS CHECKSUM".
fn meetings(answer: &str) -> Result<u64> {
    let words: Vec<&str> = answer.split_whitespace().collect();
    ensure!(words.first() == Some(&"ok"), "the ranks say {answer:?}");
    Ok(words.get(2).context("no number of meetings")?.parse()?)
}
