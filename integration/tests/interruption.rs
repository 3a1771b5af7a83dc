//! Operations that are cut off, get in each other's way, or lose their container.

use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use stasis::progress::UnderWay;
use stasis_integration::bundle::Bundle;
use stasis_integration::deadline::until_none;
use stasis_integration::descendant::descendant;
use stasis_integration::host::{Cgroups, Suite};
use stasis_integration::lab::Lab;

#[test]
fn of_checkpoints() -> Result<()> {
    let lab = Lab::start(Suite::Sid, Cgroups::oldest()?, "runc")?;
    let _containerd = lab.containerd()?;
    let counter = Bundle::make(&lab, "counter", &["/bin/counter", "10000"])?;
    counter.run()?;
    assert_eq!(lab.ask_until_up(10000)?, "101");
    a_signal_rolls_back(&lab, &counter)?;
    assert_eq!(lab.ask(10000)?.as_deref(), Some("102"));
    a_second_operation_is_refused(&lab, &counter)?;
    assert_eq!(lab.ask(10000)?.as_deref(), Some("103"));
    a_killed_operation_is_taken_up_by_the_next(&lab, &counter)?;
    assert_eq!(lab.ask(10000)?.as_deref(), Some("104"));
    a_killed_operation_is_undone_by_resume(&lab, &counter)?;
    assert_eq!(lab.ask(10000)?.as_deref(), Some("106"));
    an_image_restores_though_its_operation_was_killed(&lab, &counter)?;
    assert_eq!(lab.ask(10000)?.as_deref(), Some("107"));
    a_workload_that_crashes_is_said_to_have_ended(&lab, &counter)?;
    a_forced_delete_ends_a_checkpoint(&lab, &counter)?;
    a_forced_delete_ends_a_restore(&lab, &counter)
}

/// Begins a checkpoint whose GPU part takes a second and waits until that part has begun.
fn slow_checkpoint(lab: &Lab, counter: &Bundle<'_>, name: &str) -> Result<(Child, Pid)> {
    lab.order("checkpoint counter slow:1000")?;
    let child = counter.begin_checkpoint(name, &["--leave-running"])?;
    let runtime = descendant(&child, "stasis-runtime")?.context("the checkpoint is over")?;
    let intent = lab
        .host
        .path("/run/stasis/containers/%run%bundles/counter/intent.json");
    let deadline = Instant::now() + Duration::from_secs(5);
    while !intent.exists() {
        ensure!(
            Instant::now() < deadline,
            "the checkpoint has not begun after 5 s"
        );
        sleep(Duration::from_millis(2));
    }
    sleep(Duration::from_millis(300));
    Ok((child, runtime))
}

fn a_signal_rolls_back(lab: &Lab, counter: &Bundle<'_>) -> Result<()> {
    let (child, runtime) = slow_checkpoint(lab, counter, "signal")?;
    kill(runtime, Signal::SIGTERM)?;
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("a signal asked for it to end"), "{said}");
    assert!(said.contains("runs on as before, with its GPU"), "{said}");
    assert!(!counter.image_path("signal/stasis.json").exists());
    lab.order("")
}

fn a_second_operation_is_refused(lab: &Lab, counter: &Bundle<'_>) -> Result<()> {
    let (mut child, _) = slow_checkpoint(lab, counter, "first")?;
    let said = counter.checkpoint_fails("second", &[])?;
    assert!(
        said.contains("another stasis operation (process "),
        "{said}"
    );
    assert!(said.contains("nothing was changed"), "{said}");
    assert!(child.wait()?.success());
    assert!(counter.image_path("first/stasis.json").exists());
    lab.order("")
}

fn a_killed_operation_is_taken_up_by_the_next(lab: &Lab, counter: &Bundle<'_>) -> Result<()> {
    let (mut child, runtime) = slow_checkpoint(lab, counter, "killed")?;
    kill(runtime, Signal::SIGKILL)?;
    child.wait()?;
    lab.order("")?;
    // Whether the driver is still at it, or done, does not matter.
    counter.checkpoint("after", &["--leave-running"])?;
    let manifest = std::fs::read_to_string(counter.image_path("after/stasis.json"))?;
    let manifest: serde_json::Value = serde_json::from_str(&manifest)?;
    let bytes = manifest["processes"][0]["gpus"][0]["memory_bytes"].as_u64();
    assert!(
        bytes > Some(1 << 20),
        "what NVML forgot is in the record: {manifest}"
    );
    Ok(())
}

fn a_killed_operation_is_undone_by_resume(lab: &Lab, counter: &Bundle<'_>) -> Result<()> {
    assert!(counter.runtime(&["pause", "counter"]).status()?.success());
    let (mut child, runtime) = slow_checkpoint(lab, counter, "killed")?;
    kill(runtime, Signal::SIGKILL)?;
    child.wait()?;
    lab.order("")?;
    // The killed operation had thawed it. That there is nothing to resume is said, and the process is
    // let go all the same.
    assert!(!counter.runtime(&["resume", "counter"]).status()?.success());
    assert_eq!(lab.ask(10000)?.as_deref(), Some("105"));
    ensure!(!record(lab).exists(), "it is still recorded");
    let (mut child, runtime) = slow_checkpoint(lab, counter, "killed")?;
    kill(runtime, Signal::SIGKILL)?;
    child.wait()?;
    lab.order("")?;
    assert!(counter.runtime(&["pause", "counter"]).status()?.success());
    let resumed = counter.runtime(&["resume", "counter"]).output()?;
    assert!(
        resumed.status.success(),
        "{}",
        String::from_utf8_lossy(&resumed.stderr)
    );
    Ok(())
}

/// CRIU goes on by itself, and ends the container.
fn an_image_restores_though_its_operation_was_killed(
    lab: &Lab,
    counter: &Bundle<'_>,
) -> Result<()> {
    const KILLER: &str = "/usr/local/bin/killer";
    const SCRIPT: &str =
        "#!/bin/sh\ncase \" $* \" in *\" checkpoint \"*) kill -9 $PPID;; esac\nexec runc \"$@\"\n";
    lab.host.write(KILLER, SCRIPT)?;
    lab.host.run(&["chmod", "755", KILLER])?;
    for tier in ["portable", "disk"] {
        let settings = format!("runtime.flavor = \"runc\"\nbulk_memory.tier = \"{tier}\"\n");
        lab.set(KILLER, &settings)?;
        let mut operation = counter.begin_checkpoint("cut-off", &[])?;
        ensure!(!operation.wait()?.success(), "it was not killed");
        until_none(|| {
            let status = counter.status()?;
            let is_over = matches!(status.as_str(), "" | "stopped");
            Ok((!is_over).then(|| format!("the container is {status}")))
        })?;
        lab.set("runc", "")?;
        counter.delete()?;
        counter.restore("cut-off")?;
    }
    Ok(())
}

fn a_workload_that_crashes_is_said_to_have_ended(lab: &Lab, counter: &Bundle<'_>) -> Result<()> {
    lab.order("checkpoint counter crash")?;
    let said = counter.checkpoint_fails("crash", &[])?;
    assert!(said.contains("it ended"), "{said}");
    assert!(said.contains("the container has ended meanwhile"), "{said}");
    lab.order("")?;
    counter.delete().context("deleting what crashed")?;
    assert!(
        !lab.host
            .path("/run/stasis/containers/%run%bundles/counter")
            .exists()
    );
    Ok(())
}

fn a_forced_delete_ends_a_checkpoint(lab: &Lab, counter: &Bundle<'_>) -> Result<()> {
    counter.run()?;
    lab.ask_until_up(10000)?;
    let (mut child, _) = slow_checkpoint(lab, counter, "deleted")?;
    counter.delete()?;
    // Nothing is left to wait for: the operation is over, too.
    ensure!(!record(lab).exists(), "it is still recorded");
    ensure!(!child.wait()?.success(), "the checkpoint succeeded");
    lab.order("")
}

/// While CRIU works the low-level runtime knows no container, and its `delete` would remove the
/// container's files; afterwards there is one with its GPU state in host memory.
fn a_forced_delete_ends_a_restore(lab: &Lab, counter: &Bundle<'_>) -> Result<()> {
    counter.run()?;
    lab.ask_until_up(10000)?;
    counter.checkpoint("good", &[])?;
    counter.delete()?;
    for phase in ["criu restore", "gpu restore"] {
        lab.order("restore counter slow:1000")?;
        std::thread::scope(|scope| {
            let restore = scope.spawn(|| counter.restore("good"));
            until_none(|| {
                let told = UnderWay::read(&record(lab)).ok().flatten();
                let there = told.is_some_and(|told| told.phase == phase);
                Ok((!there).then(|| format!("no {phase}")))
            })?;
            // The restore's own words are in the log that `Bundle::delete` reads.
            let mut delete = counter.runtime(&["delete", "--force", "counter"]);
            ensure!(delete.status()?.success(), "{phase}");
            ensure!(!record(lab).exists(), "{phase}: it is still recorded");
            ensure!(
                restore.join().is_ok_and(|restore| restore.is_err()),
                "{phase}"
            );
            assert_eq!(counter.status()?, "", "{phase}");
            Ok(())
        })?;
    }
    lab.order("")?;
    counter.restore("good")?;
    assert_eq!(lab.ask(10000)?.as_deref(), Some("102"));
    counter.delete()
}

fn record(lab: &Lab) -> std::path::PathBuf {
    lab.host.path("/run/stasis/containers/%run%bundles/counter")
}
