//! Ranks that all have memory of all others, as those of NCCL on four and eight GPUs do.

use anyhow::{Context, Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::host::HostKind;
use stasis_integration::host::c_build::MOST_GPUS;
use stasis_integration::host::installed::{CUDA_CHECKPOINT, StasisHost};
use stasis_integration::on_hosts;

const PORT: u16 = 10000;

on_hosts!(all_cases: sid_v2, trixie);

fn all_cases(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::with_containerd(kind)?;
    stasis.inject(&format!("gpus {MOST_GPUS}"))?;
    all_read_what_all_count(stasis, MOST_GPUS).context("a GPU each")?;
    // On a real GPU ranks that wait for each other would be lost.
    two_of_a_gpu_are_refused(stasis)?;
    stasis.set("runc", "preflight.allow = [\"shared-gpu\"]\n")?;
    all_read_what_all_count(stasis, 2 * MOST_GPUS).context("two on each GPU")
}

fn two_of_a_gpu_are_refused(stasis: &StasisHost) -> Result<()> {
    let command = ["/bin/mesh", &PORT.to_string(), &(2 * MOST_GPUS).to_string()];
    let job = Bundle::make(stasis, "two-of-a-gpu", &command)?;
    job.give(&[0, 1, 2, 3])?;
    job.comes_up(PORT, "ok 101")?;
    let message = job.checkpoint_fails("refused", &[])?;
    assert_contains(
        &message,
        &[
            "shared-gpu",
            "with which it shares GPU memory, also uses GPU-",
        ],
    );
    ensure!(stasis.ask(PORT)?.as_deref() == Some("ok 102"));
    job.delete()
}

/// Each rank has one allocation, and imports those of the others.
fn all_read_what_all_count(stasis: &StasisHost, members: usize) -> Result<()> {
    let command = ["/bin/mesh", &PORT.to_string(), &members.to_string()];
    let job = Bundle::make(stasis, &format!("mesh-{members}"), &command)?;
    job.give(&[0, 1, 2, 3])?;
    job.run()?;
    let mut count = 101;
    ensure!(stasis.ask_until_up(PORT)? == format!("ok {count}"));
    let mut goes_on = || {
        count += 1;
        let answer = stasis.ask(PORT)?.context("the ranks are silent")?;
        ensure!(answer == format!("ok {count}"), "{answer} is not {count}");
        Ok(())
    };
    for _ in 0..2 {
        job.checkpoint("image", &["--leave-running"])?;
        let notes = stasis.operation("checkpoint")?["notes"].to_string();
        let shared = members * (members - 1);
        assert_contains(&notes, &[&format!("{shared} allocations of GPU memory")]);
        goes_on()?;
        job.checkpoint("image", &[])?;
        job.restore("image")?;
        goes_on()?;
        for _ in 0..2 {
            let toggle = ["--toggle", "--container", &job.id, "--root", ROOT];
            stasis.run(&[&[CUDA_CHECKPOINT], &toggle[..]].concat())?;
        }
        goes_on()?;
    }
    job.delete()
}
