//! A process that starts CUDA while its container is being checkpointed: it is in the image, or the
//! message says that it was in the way.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Output};

use anyhow::{Context, Result, ensure};
use stasis::progress::UnderWay;
use stasis_integration::bundle::Bundle;
use stasis_integration::deadline::until_none;
use stasis_integration::host::{Cgroups, Suite};
use stasis_integration::lab::{Lab, OPERATIONS_LOG};

#[test]
fn checkpoints_are_begun_again() -> Result<()> {
    let lab = Lab::start(Suite::Sid, Cgroups::oldest()?, "runc")?;
    let _containerd = lab.containerd()?;
    a_second_process_starts_cuda(&lab)?;
    one_after_the_other_starts_cuda(&lab)?;
    the_first_process_starts_cuda(&lab)?;
    the_first_process_starts_cuda_while_the_caller_has_it_frozen(&lab)?;
    a_failure_without_cuda_is_the_low_level_runtimes(&lab)
}

fn record(lab: &Lab, id: &str) -> PathBuf {
    lab.host
        .path(format!("/run/stasis/containers/%run%bundles/{id}"))
}

fn until_phase(lab: &Lab, id: &str, phase: &str) -> Result<()> {
    until_none(|| {
        let found = UnderWay::read(&record(lab, id))?.map(|found| found.phase);
        Ok((found.as_deref() != Some(phase)).then(|| format!("{phase} is awaited, not {found:?}")))
    })
}

/// How many lines the engine's log has.
fn logged(lab: &Lab) -> usize {
    let log = fs::read_to_string(lab.host.path(OPERATIONS_LOG));
    log.map_or(0, |log| log.lines().count())
}

fn outcome(child: Child) -> Result<(Output, String)> {
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok((output, said))
}

/// How many processes the image has GPU state of.
fn processes_of(bundle: &Bundle<'_>, image: &str) -> Result<usize> {
    let manifest = fs::read_to_string(bundle.image_path(&format!("{image}/stasis.json")))?;
    let manifest: serde_json::Value = serde_json::from_str(&manifest)?;
    Ok(manifest["processes"].as_array().context("no list")?.len())
}

fn a_second_process_starts_cuda(lab: &Lab) -> Result<()> {
    let command = "/bin/late 10001 & exec /bin/counter 10000";
    let pair = Bundle::make(lab, "pair", &["/bin/sh", "-c", command])?;
    pair.run()?;
    assert_eq!(lab.ask_until_up(10000)?, "101");
    lab.order("checkpoint pair slow:1500 1")?;
    let before = logged(lab);
    let child = pair.begin_checkpoint("image", &[])?;
    until_phase(lab, "pair", "gpu checkpoint")?;
    assert_eq!(lab.ask_until_up(10001)?, "101", "it has started CUDA");
    let (output, said) = outcome(child)?;
    ensure!(output.status.success(), "{said}");
    assert_eq!(said, "", "what was tried in vain is not told");
    assert_eq!(processes_of(&pair, "image")?, 2);
    assert_eq!(logged(lab), before + 2, "it is logged");
    let log = fs::read_to_string(lab.host.path(OPERATIONS_LOG))?;
    ensure!(log.contains("(late) started CUDA"), "{log}");
    pair.delete()?;
    pair.restore("image")?;
    assert_eq!(lab.ask(10000)?.as_deref(), Some("102"));
    assert_eq!(lab.ask(10001)?.as_deref(), Some("102"));
    pair.delete()
}

fn one_after_the_other_starts_cuda(lab: &Lab) -> Result<()> {
    let command = "/bin/late 10001 & /bin/late 10002 & exec /bin/counter 10000";
    let three = Bundle::make(lab, "three", &["/bin/sh", "-c", command])?;
    three.run()?;
    assert_eq!(lab.ask_until_up(10000)?, "101");
    lab.order("checkpoint three slow:1500")?;
    let before = logged(lab);
    let child = three.begin_checkpoint("image", &[])?;
    until_phase(lab, "three", "gpu checkpoint")?;
    lab.ask_until_up(10001)?;
    until_none(|| Ok((logged(lab) == before).then(|| "the first attempt has not failed".into())))?;
    until_phase(lab, "three", "gpu checkpoint")?;
    lab.ask_until_up(10002)?;
    let (output, said) = outcome(child)?;
    assert_eq!(output.status.code(), Some(1), "{said}");
    ensure!(said.contains("(late) started CUDA while"), "{said}");
    ensure!(said.contains("runs on as before, with its GPU"), "{said}");
    lab.order("")?;
    assert_eq!(lab.ask(10000)?.as_deref(), Some("102"));
    for port in [10001, 10002] {
        assert_eq!(lab.ask(port)?.as_deref(), Some("102"));
    }
    ensure!(!three.image_path("image/stasis.json").exists());
    ensure!(!record(lab, "three").exists());
    three.delete()
}

fn the_first_process_starts_cuda(lab: &Lab) -> Result<()> {
    let first = Bundle::make(lab, "first", &["/bin/late", "10000"])?;
    first.run()?;
    // Without CUDA it is an image of the low-level runtime, made without a word.
    first.checkpoint("plain", &["--leave-running"])?;
    ensure!(!first.image_path("plain/stasis.json").exists());
    lab.hold_criu("pre-dump")?;
    let child = first.begin_checkpoint("image", &[])?;
    lab.until_criu_is_held()?;
    assert_eq!(lab.ask_until_up(10000)?, "101");
    lab.let_criu_go()?;
    let (output, said) = outcome(child)?;
    ensure!(output.status.success(), "{said}");
    assert_eq!(said, "");
    assert_eq!(processes_of(&first, "image")?, 1);
    first.delete()?;
    first.restore("image")?;
    assert_eq!(lab.ask(10000)?.as_deref(), Some("102"));
    first.delete()?;
    // The plain image is as good as it was.
    first.restore("plain")?;
    assert_eq!(lab.ask_until_up(10000)?, "101");
    first.delete()
}

/// As containerd does it. While it is frozen no process can start CUDA, so the image is a plain one;
/// and it is frozen when the call returns.
fn the_first_process_starts_cuda_while_the_caller_has_it_frozen(lab: &Lab) -> Result<()> {
    let frozen = Bundle::make(lab, "frozen", &["/bin/late", "10000"])?;
    frozen.run()?;
    ensure!(frozen.runtime(&["pause", "frozen"]).status()?.success());
    frozen.checkpoint("plain", &["--leave-running"])?;
    ensure!(!frozen.image_path("plain/stasis.json").exists());
    assert_eq!(frozen.status()?, "paused");
    ensure!(frozen.runtime(&["resume", "frozen"]).status()?.success());
    assert_eq!(lab.ask_until_up(10000)?, "101");
    frozen.delete()
}

fn a_failure_without_cuda_is_the_low_level_runtimes(lab: &Lab) -> Result<()> {
    let idle = Bundle::make(lab, "idle", &["/bin/late", "10000"])?;
    idle.run()?;
    let before = logged(lab);
    lab.host
        .run(&["mv", "/usr/sbin/criu", "/usr/sbin/criu.away"])?;
    let ours = outcome(idle.begin_checkpoint("image", &[])?)?;
    let theirs = lab
        .command("runc")
        .args(["--root", "/run/bundles", "checkpoint", "--image-path"])
        .args([&idle.image("image"), "idle"])
        .output()?;
    lab.host
        .run(&["mv", "/usr/sbin/criu.away", "/usr/sbin/criu"])?;
    assert_eq!(ours.0.status.code(), theirs.status.code());
    let message = |text: &str| text.split_once("level=").map(|(_, rest)| rest.to_owned());
    assert_eq!(
        message(&ours.1),
        message(&String::from_utf8_lossy(&theirs.stderr))
    );
    ensure!(ours.1.contains("level=error"), "{}", ours.1);
    assert_eq!(logged(lab), before, "it was no operation of ours");
    ensure!(!record(lab, "idle").exists());
    assert_eq!(lab.ask_until_up(10000)?, "101");
    idle.delete()
}
