//! Operations that are cut off, conflict with each other, or lose their container.

use std::fs;
use std::process::Child;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use stasis_engine::operation::progress::UnderWay;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::process_tree::descendant;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::container::contents::Contents;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;

/// The name by which a driver call is held.
const HELD: &str = "held";

#[test]
fn of_checkpoints() -> Result<()> {
    let stasis = StasisHost::with_containerd(HostKind::sid()?)?;
    let counter = Bundle::make(&stasis, "counter", &["/bin/counter", "10000"])?;
    counter.comes_up(10000, "101")?;
    a_signal_rolls_back(&stasis, &counter)?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    a_second_operation_is_refused(&stasis, &counter)?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("103"));
    a_lock_file_that_nobody_holds_hinders_nothing(&stasis, &counter)?;
    a_killed_operation_is_in_the_way_of_no_other(&stasis, &counter)?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("104"));
    an_image_restores_though_its_operation_was_killed(&stasis, &counter)?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("105"));
    a_workload_that_crashes_is_said_to_have_ended(&stasis, &counter)?;
    a_forced_delete_ends_a_checkpoint(&stasis, &counter)?;
    a_forced_delete_ends_a_restore(&stasis, &counter)
}

/// Begins a checkpoint whose GPU part takes some seconds in the process, and waits until it has
/// begun.
fn slow_checkpoint(stasis: &StasisHost, counter: &Bundle<'_>, name: &str) -> Result<(Child, Pid)> {
    stasis.inject("checkpoint counter slow:3000 1")?;
    begun(stasis, counter, name)
}

/// Does the same with a GPU part that [`HELD`] holds.
fn held_checkpoint(stasis: &StasisHost, counter: &Bundle<'_>, name: &str) -> Result<(Child, Pid)> {
    stasis.hold_driver("checkpoint counter", HELD)?;
    begun(stasis, counter, name)
}

fn begun(stasis: &StasisHost, counter: &Bundle<'_>, name: &str) -> Result<(Child, Pid)> {
    let child = counter.begin_checkpoint(name, &["--leave-running"])?;
    let runtime = descendant(&child, "stasis-runtime")?.context("the checkpoint is over")?;
    stasis.until_driver_is_called()?;
    Ok((child, runtime))
}

fn a_signal_rolls_back(stasis: &StasisHost, counter: &Bundle<'_>) -> Result<()> {
    let (child, runtime) = held_checkpoint(stasis, counter, "signal")?;
    kill(runtime, Signal::SIGTERM)?;
    stasis.let_driver_go(HELD)?;
    let output = child.wait_with_output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_contains(
        &stderr,
        &[
            "a signal asked for it to end",
            "runs on as before, with its GPU",
        ],
    );
    assert!(!counter.image_path("signal/stasis.json").exists());
    stasis.inject("")
}

fn a_second_operation_is_refused(stasis: &StasisHost, counter: &Bundle<'_>) -> Result<()> {
    let (mut child, _) = held_checkpoint(stasis, counter, "first")?;
    let message = counter.checkpoint_fails("second", &[])?;
    stasis.let_driver_go(HELD)?;
    assert_contains(
        &message,
        &["another stasis operation (process ", "nothing was changed"],
    );
    assert!(child.wait()?.success());
    assert!(counter.image_path("first/stasis.json").exists());
    stasis.inject("")
}

/// A runtime that is killed before it writes its intent has changed nothing, and leaves its lock
/// file.
fn a_lock_file_that_nobody_holds_hinders_nothing(
    stasis: &StasisHost,
    counter: &Bundle<'_>,
) -> Result<()> {
    fs::create_dir_all(counter.record())?;
    fs::write(counter.record().join("lock"), "4194303")?;
    assert_eq!(stasis.records()?, "", "nothing has to be put right");
    counter.pause()?;
    counter.resume()?;
    let (mut child, _) = held_checkpoint(stasis, counter, "taken-over")?;
    let records = stasis.records()?;
    stasis.let_driver_go(HELD)?;
    assert_contains(&records, &["counter/lock", "counter/intent.json"]);
    assert!(child.wait()?.success());
    assert!(!counter.record().exists());
    stasis.inject("")
}

fn a_killed_operation_is_in_the_way_of_no_other(
    stasis: &StasisHost,
    counter: &Bundle<'_>,
) -> Result<()> {
    let (mut child, runtime) = slow_checkpoint(stasis, counter, "killed")?;
    kill(runtime, Signal::SIGKILL)?;
    child.wait()?;
    stasis.inject("")?;
    // The checkpoint waits for the killed one's keeper, for which the driver may still be at work.
    counter.checkpoint("after", &["--leave-running"])?;
    let manifest = counter.manifest("after")?;
    let bytes = manifest["processes"][0]["gpus"][0]["memory_bytes"].as_u64();
    assert!(
        bytes > Some(1 << 20),
        "what NVML forgot is in the record: {manifest}"
    );
    Ok(())
}

/// CRIU continues alone, and ends the container.
fn an_image_restores_though_its_operation_was_killed(
    stasis: &StasisHost,
    counter: &Bundle<'_>,
) -> Result<()> {
    const KILLER: &str = "/usr/local/bin/killer";
    const SCRIPT: &str =
        "#!/bin/sh\ncase \" $* \" in *\" checkpoint \"*) kill -9 $PPID;; esac\nexec runc \"$@\"\n";
    stasis.script(KILLER, SCRIPT)?;
    for place in Contents::ALL {
        let settings = format!("runtime.flavor = \"runc\"\n{}", place.setting());
        stasis.set(KILLER, &settings)?;
        let mut operation = counter.begin_checkpoint("cut-off", &[])?;
        ensure!(!operation.wait()?.success(), "it was not killed");
        counter.until_ended()?;
        stasis.set("runc", place.setting())?;
        stasis.nothing_to_put_right()?;
        counter.delete()?;
        counter.restore("cut-off")?;
    }
    Ok(())
}

fn a_workload_that_crashes_is_said_to_have_ended(
    stasis: &StasisHost,
    counter: &Bundle<'_>,
) -> Result<()> {
    stasis.inject("checkpoint counter crash")?;
    let message = counter.checkpoint_fails("crash", &[])?;
    assert_contains(&message, &["it ended", "the container has ended meanwhile"]);
    stasis.inject("")?;
    counter.delete().context("deleting what crashed")?;
    assert!(!counter.record().exists());
    Ok(())
}

fn a_forced_delete_ends_a_checkpoint(stasis: &StasisHost, counter: &Bundle<'_>) -> Result<()> {
    counter.run()?;
    stasis.ask_until_up(10000)?;
    // The end of the container ends the call.
    stasis.inject("checkpoint counter slow:60000 1")?;
    let (mut child, _) = begun(stasis, counter, "deleted")?;
    delete_by_force(counter)?;
    // Nothing remains to wait for: the operation is over, too.
    ensure!(!record(stasis).exists(), "it is still recorded");
    ensure!(!child.wait()?.success(), "the checkpoint succeeded");
    stasis.inject("")
}

/// While CRIU works the low-level runtime knows no container, and its `delete` would remove the
/// container's files; after that a container exists with its GPU state in host memory.
fn a_forced_delete_ends_a_restore(stasis: &StasisHost, counter: &Bundle<'_>) -> Result<()> {
    counter.run()?;
    stasis.ask_until_up(10000)?;
    counter.checkpoint("good", &[])?;
    counter.delete()?;
    for phase in ["criu restore", "gpu restore"] {
        a_forced_delete_ends_it_in(stasis, counter, phase).context(phase)?;
    }
    counter.restore("good")?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    counter.delete()
}

fn a_forced_delete_ends_it_in(
    stasis: &StasisHost,
    counter: &Bundle<'_>,
    phase: &str,
) -> Result<()> {
    stasis.inject("restore counter slow:60000")?;
    let in_criu = phase == "criu restore";
    if in_criu {
        stasis.hold_criu("post-restore")?;
    }
    std::thread::scope(|scope| {
        let restore = scope.spawn(|| counter.restore("good"));
        let reached = until_it_is_in(stasis, phase);
        let delete = scope.spawn(|| delete_by_force(counter));
        if in_criu {
            stasis.let_criu_go()?;
        }
        reached?;
        delete.join().ok().context("it panicked")??;
        ensure!(!record(stasis).exists(), "it is still recorded");
        ensure!(restore.join().is_ok_and(|restore| restore.is_err()));
        assert_eq!(counter.status()?, "");
        anyhow::Ok(())
    })?;
    stasis.inject("")
}

fn until_it_is_in(stasis: &StasisHost, phase: &str) -> Result<()> {
    wait_until_clear(|| {
        let under_way = UnderWay::read(&record(stasis)).ok().flatten();
        let there = under_way.is_some_and(|under_way| under_way.phase == phase);
        Ok((!there).then(|| format!("no {phase}")))
    })
}

/// Repeats the delete, which is refused until the operation has ended.
fn delete_by_force(counter: &Bundle<'_>) -> Result<()> {
    wait_until_clear(|| {
        // The message of the operation is in the log that `Bundle::delete` reads.
        let delete = counter
            .runtime(&["delete", "--force", "counter"])
            .output()?;
        let stderr = String::from_utf8_lossy(&delete.stderr).into_owned();
        Ok((!delete.status.success()).then_some(stderr))
    })
}

fn record(stasis: &StasisHost) -> std::path::PathBuf {
    stasis.record(ROOT, "counter")
}
