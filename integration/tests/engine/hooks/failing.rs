//! Hooks that fail, hang, do not exist, or leave a process.

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use serde_json::json;
use stasis_engine::error::kind::{Kind, State};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::process_tree::descendant;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::installed::StasisHost;

use super::{AFTER, BEFORE, END_IT, HANGING, Job};

/// Checks that the checkpoint is refused, and that the rollback runs the after-restore hook.
fn refused(job: &Job<'_>, parts: &[&str]) -> Result<()> {
    let message = job.counter.checkpoint_fails("refused", &[])?;
    assert_contains(&message, parts);
    assert_contains(&message, &["before-checkpoint hook"]);
    let failure = job.counter.failure()?.context("nothing is reported")?;
    ensure!(failure.kind == Some(Kind::HookFailed), "{failure:?}");
    ensure!(failure.state == Some(State::Unharmed), "{failure:?}");
    ensure!(!job.counter.image_path("refused/inventory.img").exists());
    job.has_phase("checkpoint", "roll back: after-restore hook")
}

pub(super) fn with_an_exit_code(job: &mut Job<'_>) -> Result<()> {
    let script = "echo before >>/hooks; seq 1 100000; printf 'not\\033[2J now\\n' >&2; exit 3";
    job.annotate_before(script, "30")?;
    refused(
        job,
        &["ended with exit code 3", "said ", "not\\u{1b}[2J now"],
    )?;
    let said = job.counter.message()?.unwrap_or_default();
    ensure!(said.len() < 8192, "{}", said.len());
    job.were_run(&["before", "after"])?;
    job.annotate_before("echo before >>/hooks; kill -9 $$", "30")?;
    refused(job, &["was ended by signal 9"])?;
    job.were_run(&["before", "after"])
}

pub(super) fn without_a_program(job: &mut Job<'_>) -> Result<()> {
    job.annotate_before("[\"/no/such/program\", \"x\"]", "30")?;
    refused(job, &["could not be started", "/no/such/program"])?;
    job.were_run(&["after"])
}

/// The hook is ended with its children, but not with processes that have left its session.
pub(super) fn that_hangs(job: &mut Job<'_>) -> Result<()> {
    let script = format!(
        "echo before >>/hooks; tail -f {HANGING} & tail -f {HANGING} & (tail -f {HANGING} &); \
         tail -f {HANGING}"
    );
    job.annotate_before(&script, "5")?;
    refused(job, &["had not ended after 5 s, and was ended"])?;
    job.were_run(&["before", "after"])?;
    // Many processes, which ignore SIGTERM, SIGINT and SIGHUP.
    let script = format!(
        "trap '' TERM INT HUP; i=0; while [ $i -lt 50 ]; do tail -f {HANGING} & i=$((i+1)); done; \
         wait"
    );
    job.annotate_before(&script, "5")?;
    refused(job, &["had not ended after 5 s"])?;
    job.were_run(&["after"])
}

/// The engine does not wait for a process that has the hook's output open.
pub(super) fn that_leaves_a_child(job: &mut Job<'_>) -> Result<()> {
    let script = format!("echo before >>/hooks; tail -f {HANGING} & exit 4");
    job.annotate_before(&script, "600")?;
    refused(job, &["ended with exit code 4"])?;
    job.were_run(&["before", "after"])?;
    job.counter.exec("killall -9 tail")?;
    Ok(())
}

/// The container goes on, and the log has the reason why its program was not notified.
pub(super) fn after_the_restore(job: &mut Job<'_>) -> Result<()> {
    let after = "echo after >>/hooks; echo no use; exit 5";
    job.annotate(&[(BEFORE, "echo before >>/hooks"), (AFTER, after)])?;
    let noted = |operation| -> Result<()> {
        let line = job.stasis.operation(operation)?;
        let notes = line["notes"].to_string();
        assert_contains(&notes, &["after-restore hook", "exit code 5", "no use"]);
        ensure!(line.get("error").is_none(), "{line}");
        Ok(())
    };
    job.counter.checkpoint("fails", &["--leave-running"])?;
    noted("checkpoint")?;
    job.were_run(&["before", "after"])?;
    job.counter.checkpoint("fails", &[])?;
    job.counter.delete()?;
    job.counter.restore("fails")?;
    noted("restore")?;
    job.were_run(&["before", "after"])
}

/// A signal does not wait for a hook.
pub(super) fn ended_by_a_signal(job: &mut Job<'_>) -> Result<()> {
    job.annotate_before(&format!("echo before >>/hooks; tail -f {HANGING}"), "600")?;
    let child = job.counter.begin_checkpoint("signal", &[])?;
    job.until_run("before")?;
    let runtime = descendant(&child, "stasis-runtime")?.context("the checkpoint is over")?;
    kill(runtime, Signal::SIGTERM)?;
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert_contains(
        &said,
        &["a signal asked for it to end", "runs on as before"],
    );
    job.were_run(&["before", "after"])
}

/// The image would have no GPU state: that checkpoint is refused, and the next one succeeds.
pub(super) fn of_the_last_cuda_process(stasis: &StasisHost) -> Result<()> {
    let script = "/bin/counter 10002 & echo $! >/told; exec /bin/pause";
    let server = Bundle::make(stasis, "server", &["/bin/sh", "-c", script])?;
    server.suit_crun()?;
    server.change(|spec| {
        spec["annotations"] = json!({BEFORE: END_IT, AFTER: "touch /after"});
    })?;
    server.comes_up(10002, "101")?;
    let message = server.checkpoint_fails("ended", &[])?;
    assert_contains(
        &message,
        &["[hook-failed]", "left no process that uses CUDA"],
    );
    let root = stasis.path(server.directory()).join("rootfs");
    ensure!(root.join("after").exists());
    stasis.nothing_to_put_right()?;
    server.checkpoint("image", &[])?;
    server.delete()?;
    server.restore("image")?;
    ensure!(server.status()? == "running");
    server.delete()
}
