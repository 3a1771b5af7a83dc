//! A process that starts CUDA while its container is being checkpointed: the image has it, or the
//! message names it as the obstacle.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Output};

use anyhow::{Context, Result, ensure};
use stasis_engine::operation::progress::UnderWay;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{OPERATIONS_LOG, StasisHost};

#[test]
fn checkpoints_are_begun_again() -> Result<()> {
    let stasis = StasisHost::with_containerd(HostKind::sid()?)?;
    a_second_process_starts_cuda(&stasis)?;
    one_after_the_other_starts_cuda(&stasis)?;
    the_first_process_starts_cuda(&stasis)?;
    the_first_process_starts_cuda_while_the_caller_has_it_frozen(&stasis)?;
    a_failure_without_cuda_is_the_low_level_runtimes(&stasis)
}

fn record(stasis: &StasisHost, id: &str) -> PathBuf {
    stasis.record(ROOT, id)
}

fn until_phase(stasis: &StasisHost, id: &str, phase: &str) -> Result<()> {
    wait_until_clear(|| {
        let found = UnderWay::read(&record(stasis, id))?.map(|found| found.phase);
        Ok((found.as_deref() != Some(phase)).then(|| format!("{phase} is awaited, not {found:?}")))
    })
}

/// Returns the number of lines in the engine's log.
fn logged(stasis: &StasisHost) -> usize {
    let log = fs::read_to_string(stasis.path(OPERATIONS_LOG));
    log.map_or(0, |log| log.lines().count())
}

fn outcome(child: Child) -> Result<(Output, String)> {
    let output = child.wait_with_output()?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok((output, stderr))
}

/// Returns the number of processes whose GPU state the image has.
fn processes_of(bundle: &Bundle<'_>, image: &str) -> Result<usize> {
    let manifest = bundle.manifest(image)?;
    Ok(manifest["processes"].as_array().context("no list")?.len())
}

fn a_second_process_starts_cuda(stasis: &StasisHost) -> Result<()> {
    let command = "/bin/late 10001 & exec /bin/counter 10000";
    let pair = Bundle::make(stasis, "pair", &["/bin/sh", "-c", command])?;
    pair.comes_up(10000, "101")?;
    stasis.hold_driver("checkpoint pair", "first")?;
    let before = logged(stasis);
    let child = pair.begin_checkpoint("image", &[])?;
    until_phase(stasis, "pair", "gpu checkpoint")?;
    assert_eq!(stasis.ask_until_up(10001)?, "101", "it has started CUDA");
    stasis.let_driver_go("first")?;
    let (output, stderr) = outcome(child)?;
    ensure!(output.status.success(), "{stderr}");
    assert_eq!(stderr, "", "the first try is not mentioned");
    assert_eq!(processes_of(&pair, "image")?, 2);
    assert_eq!(logged(stasis), before + 2, "it is logged");
    let log = fs::read_to_string(stasis.path(OPERATIONS_LOG))?;
    ensure!(log.contains("(late) started CUDA"), "{log}");
    pair.delete()?;
    pair.restore("image")?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    assert_eq!(stasis.ask(10001)?.as_deref(), Some("102"));
    pair.delete()
}

fn one_after_the_other_starts_cuda(stasis: &StasisHost) -> Result<()> {
    let command = "/bin/late 10001 & /bin/late 10002 & exec /bin/counter 10000";
    let three = Bundle::make(stasis, "three", &["/bin/sh", "-c", command])?;
    three.comes_up(10000, "101")?;
    stasis.hold_driver("checkpoint three", "first")?;
    let before = logged(stasis);
    let child = three.begin_checkpoint("image", &[])?;
    until_phase(stasis, "three", "gpu checkpoint")?;
    stasis.ask_until_up(10001)?;
    stasis.until_driver_is_called()?;
    stasis.hold_driver("checkpoint three", "second")?;
    stasis.let_driver_go("first")?;
    wait_until_clear(|| {
        Ok((logged(stasis) == before).then(|| "the first attempt has not failed".into()))
    })?;
    stasis.until_driver_is_called()?;
    stasis.ask_until_up(10002)?;
    stasis.let_driver_go("second")?;
    let (output, stderr) = outcome(child)?;
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_contains(
        &stderr,
        &[
            "(late) started CUDA while",
            "runs on as before, with its GPU",
        ],
    );
    stasis.inject("")?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    for port in [10001, 10002] {
        assert_eq!(stasis.ask(port)?.as_deref(), Some("102"));
    }
    ensure!(!three.image_path("image/stasis.json").exists());
    ensure!(!record(stasis, "three").exists());
    three.delete()
}

fn the_first_process_starts_cuda(stasis: &StasisHost) -> Result<()> {
    let first = Bundle::make(stasis, "first", &["/bin/late", "10000"])?;
    first.run()?;
    // Without CUDA the low-level runtime makes its own image, without a message.
    first.checkpoint("plain", &["--leave-running"])?;
    ensure!(!first.image_path("plain/stasis.json").exists());
    stasis.hold_criu("pre-dump")?;
    let child = first.begin_checkpoint("image", &[])?;
    stasis.until_criu_is_held()?;
    assert_eq!(stasis.ask_until_up(10000)?, "101");
    stasis.let_criu_go()?;
    let (output, stderr) = outcome(child)?;
    ensure!(output.status.success(), "{stderr}");
    assert_eq!(stderr, "");
    assert_eq!(processes_of(&first, "image")?, 1);
    first.delete()?;
    first.restore("image")?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    first.delete()?;
    // The plain image is as good as before.
    first.restore("plain")?;
    assert_eq!(stasis.ask_until_up(10000)?, "101");
    first.delete()
}

/// As containerd does. No process of a frozen container can start CUDA, so the image is a plain
/// one; and the container is frozen when the call returns.
fn the_first_process_starts_cuda_while_the_caller_has_it_frozen(stasis: &StasisHost) -> Result<()> {
    let frozen = Bundle::make(stasis, "frozen", &["/bin/late", "10000"])?;
    frozen.run()?;
    frozen.pause()?;
    frozen.checkpoint("plain", &["--leave-running"])?;
    ensure!(!frozen.image_path("plain/stasis.json").exists());
    assert_eq!(frozen.status()?, "paused");
    ensure!(frozen.runtime(&["resume", "frozen"]).status()?.success());
    assert_eq!(stasis.ask_until_up(10000)?, "101");
    frozen.delete()
}

fn a_failure_without_cuda_is_the_low_level_runtimes(stasis: &StasisHost) -> Result<()> {
    let idle = Bundle::make(stasis, "idle", &["/bin/late", "10000"])?;
    idle.run()?;
    let before = logged(stasis);
    stasis.run(&["mv", "/usr/sbin/criu", "/usr/sbin/criu.away"])?;
    // Without a log of its own, runc writes its message to standard error.
    let arguments = ["checkpoint", "--image-path", &idle.image("image"), "idle"];
    let ours = outcome(idle.runtime(&arguments).spawn()?)?;
    let theirs = stasis
        .command("runc")
        .args(["--root", "/run/bundles", "checkpoint", "--image-path"])
        .args([&idle.image("image"), "idle"])
        .output()?;
    stasis.run(&["mv", "/usr/sbin/criu.away", "/usr/sbin/criu"])?;
    assert_eq!(ours.0.status.code(), theirs.status.code());
    let message = |text: &str| text.split_once("level=").map(|(_, rest)| rest.to_owned());
    assert_eq!(
        message(&ours.1),
        message(&String::from_utf8_lossy(&theirs.stderr)),
        "{}",
        ours.1
    );
    ensure!(ours.1.contains("level=error"), "{}", ours.1);
    assert_eq!(logged(stasis), before, "it was no operation of ours");
    ensure!(!record(stasis, "idle").exists());
    assert_eq!(stasis.ask_until_up(10000)?, "101");
    idle.delete()
}
