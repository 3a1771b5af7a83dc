//! The engine, or a hook's runner, is killed (SIGKILL): the program is notified all the same.

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::process_tree::descendant;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::host::installed::PROGRAM;

use super::{HANGING, Job};
use crate::killed::Killed;

/// Gives the job a hook that hangs until it is ended.
fn hang(job: &Job<'_>) -> Result<()> {
    job.annotate_before(&format!("echo before >>/hooks; tail -f {HANGING}"), "600")
}

pub(super) fn of_the_engine(job: &mut Job<'_>) -> Result<()> {
    in_the_hook(job)?;
    job.annotate_before("echo before >>/hooks", "30")?;
    let here = &Killed {
        stasis: job.stasis,
        counter: job.counter,
    };
    // The first call of the lock comes after the hook and before all else.
    for call in ["lock", "checkpoint", "restore"] {
        here.at(call, || {
            job.counter
                .begin_checkpoint("cut-off", &["--leave-running"])
        })?;
        job.stasis.nothing_to_put_right()?;
        job.were_run(&["before", "after"]).context(call)?;
        job.has_phase("recover", "recover: after-restore hook")?;
    }
    in_the_dump(job)?;
    with_its_keeper(job, here)
}

/// The hook ends with the engine.
fn in_the_hook(job: &Job<'_>) -> Result<()> {
    hang(job)?;
    let mut child = job.counter.begin_checkpoint("cut-off", &[])?;
    job.until_run("before")?;
    let runtime = descendant(&child, "stasis-runtime")?.context("the checkpoint is over")?;
    kill(runtime, Signal::SIGKILL)?;
    child.wait()?;
    job.stasis.nothing_to_put_right()?;
    job.were_run(&["before", "after"])
}

/// CRIU continues, and then the container.
fn in_the_dump(job: &Job<'_>) -> Result<()> {
    job.counter.before_criu("kill -9 $PPID", "")?;
    let mut operation = job
        .counter
        .begin_checkpoint("in-dump", &["--leave-running"])?;
    ensure!(!operation.wait()?.success(), "it was not killed");
    job.stasis.set(&job.stasis.low_level, "")?;
    job.stasis.nothing_to_put_right()?;
    job.were_run(&["before", "after"])
}

/// The recovery notifies the program.
fn with_its_keeper(job: &Job<'_>, here: &Killed<'_>) -> Result<()> {
    let (mut operation, runtime) = here.held("checkpoint", || {
        job.counter
            .begin_checkpoint("cut-off", &["--leave-running"])
    })?;
    here.stasis.kill_keepers()?;
    kill(runtime, Signal::SIGKILL)?;
    operation.wait()?;
    here.let_go()?;
    job.were_run(&["before"])?;
    job.stasis.run(&[PROGRAM, "recover", "counter"])?;
    job.were_run(&["after"])
}

/// The checkpoint fails, and the hook does not continue.
pub(super) fn of_the_runner(job: &mut Job<'_>) -> Result<()> {
    hang(job)?;
    let child = job.counter.begin_checkpoint("refused", &[])?;
    job.until_run("before")?;
    wait_until_clear(|| {
        let killed = ["pkill", "-KILL", "-x", "stasis-hook"];
        Ok(job.stasis.run(&killed).err().map(|error| error.to_string()))
    })?;
    let output = child.wait_with_output()?;
    ensure!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_contains(&said, &["[hook-failed]", "that ran it was killed"]);
    job.were_run(&["before", "after"])
}
