//! Containers that are suspended in place.

use anyhow::{Result, ensure};
use serde_json::Value;
use stasis_integration::client::answer::listed;
use stasis_integration::container::bundle::ROOT;
use stasis_integration::host::installed::{CUDA_CHECKPOINT, PROGRAM};

use super::Job;
use crate::killed::Killed;

const CONTAINER: [&str; 4] = ["--container", "counter", "--root", ROOT];

/// Runs `stasis suspend` or `stasis resume`. Returns the answer for the container.
fn stasis(job: &Job<'_>, verb: &str) -> Result<Value> {
    let mut command = job.stasis.command(PROGRAM);
    let output = command
        .args([verb, "--json", "--root", ROOT, "counter"])
        .output()?;
    Ok(listed(&output.stdout)?.remove(0))
}

pub(super) fn in_place(job: &mut Job<'_>) -> Result<()> {
    let suspended = stasis(job, "suspend")?;
    ensure!(suspended["result"] == "done", "{suspended}");
    job.were_run(&["before"])?;
    job.has_phase("suspend", "suspend: before-checkpoint hook")?;
    // The program was notified already; a restore notifies the program in the image.
    job.counter.checkpoint("suspended", &["--leave-running"])?;
    job.were_run(&[])?;
    let resumed = stasis(job, "resume")?;
    ensure!(resumed["result"] == "done", "{resumed}");
    job.were_run(&["after"])?;
    job.has_phase("resume", "resume: after-restore hook")?;
    let toggle = [&[CUDA_CHECKPOINT, "--toggle"], &CONTAINER[..]].concat();
    job.stasis.run(&toggle)?;
    job.were_run(&["before"])?;
    job.stasis.run(&toggle)?;
    job.were_run(&["after"])?;
    that_is_killed(job)
}

fn that_is_killed(job: &Job<'_>) -> Result<()> {
    let here = Killed {
        stasis: job.stasis,
        counter: job.counter,
    };
    let toggle = || {
        let mut command = job.stasis.command(CUDA_CHECKPOINT);
        Ok(command.arg("--toggle").args(CONTAINER).spawn()?)
    };
    here.at("checkpoint", toggle)?;
    job.stasis.nothing_to_put_right()?;
    job.were_run(&["before", "after"])?;
    ensure!(toggle()?.wait()?.success());
    job.were_run(&["before"])?;
    here.at("restore", toggle)?;
    job.stasis.nothing_to_put_right()?;
    job.were_run(&["after"])
}

pub(super) fn that_fails(job: &mut Job<'_>) -> Result<()> {
    job.annotate_before("echo before >>/hooks; exit 1", "30")?;
    let failed = stasis(job, "suspend")?;
    ensure!(failed["result"] == "failed", "{failed}");
    ensure!(
        failed["kind"] == "hook-failed" && failed["state"] == "unharmed",
        "{failed}"
    );
    job.were_run(&["before", "after"])?;
    job.annotate_before("echo before >>/hooks", "30")?;
    job.stasis.inject("checkpoint counter error:801 1")?;
    let failed = stasis(job, "suspend")?;
    job.stasis.inject("")?;
    ensure!(
        failed["result"] == "failed" && failed["state"] == "unharmed",
        "{failed}"
    );
    job.were_run(&["before", "after"])
}
