//! Restores and resumes that are refused before anything is started, leave all as it was, and succeed
//! once the reason is gone.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use stasis_integration::bundle::Bundle;
use stasis_integration::host::{Cgroups, Suite};
use stasis_integration::lab::Lab;
use stasis_integration::native;

const PORT: u16 = 10000;

#[test]
fn with_runc() -> Result<()> {
    all_cases(&Lab::start(Suite::Sid, Cgroups::V2, "runc")?)
}

#[test]
fn with_an_older_runc() -> Result<()> {
    all_cases(&Lab::start(Suite::Trixie, Cgroups::oldest()?, "runc")?)
}

fn all_cases(lab: &Lab) -> Result<()> {
    if native::has_gpu() {
        return Ok(());
    }
    let _containerd = lab.containerd()?;
    let memory = Bundle::make(lab, "memory", &["/bin/memcheck", "32", "10000"])?;
    lab.order("gpus 2\ndriver 580.95.05")?;
    memory.give(&[0])?;
    memory.run()?;
    assert_eq!(lab.ask_until_up(PORT)?, "ok 0");
    memory.checkpoint("image", &[])?;
    restores_are_refused(lab, &memory)?;
    persistence_mode_can_be_done_without(lab, &memory)?;
    resumes_are_refused(lab, &memory)?;
    room_is_made(lab)
}

/// Every file of an image with a digest of its contents, but CRIU's statistics.
fn contents(directory: &Path) -> Result<BTreeMap<String, blake3::Hash>> {
    let mut contents = BTreeMap::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name != "stats-restore" {
            contents.insert(name, blake3::hash(&fs::read(entry.path())?));
        }
    }
    Ok(contents)
}

fn restores_are_refused(lab: &Lab, memory: &Bundle<'_>) -> Result<()> {
    let (image, spec) = (contents(&memory.image_path("image"))?, memory.spec()?);
    // What the stand-in's machine is like, which GPU the container is given, and what is said.
    let cases: [(&str, &[usize], &[&str]); 9] = [
        (
            "memory 95 0",
            &[0],
            &["has 95 MiB free", "the image needs 97 MiB"],
        ),
        ("mig 0", &[0], &["is in MIG mode", "nvidia-smi -mig 0"]),
        ("mig 1", &[1], &["is in MIG mode"]),
        (
            "persistence-off 1",
            &[1],
            &["persistence mode", "nvidia-smi -pm 1"],
        ),
        (
            "name 1 another GPU",
            &[1],
            &["it has GPU-", "(another GPU)"],
        ),
        ("memory 65536 1", &[1], &["another of its kind to spare"]),
        ("", &[], &["it has none", "give it as many GPUs"]),
        (
            "driver 580.82.07",
            &[0],
            &["was made with driver 580.95.05", "the older 580.82.07"],
        ),
        ("driver 570.211.01", &[0], &["the older 570.211.01"]),
    ];
    for (machine, gpus, parts) in cases {
        lab.order(&format!("gpus 2\ndriver 580.95.05\n{machine}"))?;
        memory.give(gpus)?;
        let given = memory.spec()?;
        let said = memory.restore_fails("image")?;
        for part in [&["refused", "nothing was changed"], parts].concat() {
            assert!(said.contains(part), "{part:?} is missing in: {said}");
        }
        assert_eq!(contents(&memory.image_path("image"))?, image, "{machine}");
        assert_eq!(memory.spec()?, given, "{machine}");
    }
    // A GPU that is not given may be as it likes, and one that knows nothing of modes will do.
    lab.order("gpus 2\ndriver 580.105.08\nmemory 1 1\nmig 1\nold 0")?;
    memory.change(|now| *now = spec)?;
    memory.restore("image")?;
    assert_eq!(lab.ask(PORT)?.as_deref(), Some("ok 1"));
    memory.delete()
}

/// Another container has the GPU that the restored one is to get.
fn room_is_made(lab: &Lab) -> Result<()> {
    lab.order("gpus 2\nmemory 120")?;
    let memory = Bundle::make(lab, "moving", &["/bin/memcheck", "32", "10000"])?;
    let other = Bundle::make(lab, "other", &["/bin/memcheck", "16", "10001"])?;
    memory.give(&[0])?;
    memory.run()?;
    assert_eq!(lab.ask_until_up(PORT)?, "ok 0");
    memory.checkpoint("image", &[])?;
    other.give(&[1])?;
    other.run()?;
    assert_eq!(lab.ask_until_up(10001)?, "ok 0");
    memory.give(&[1])?;
    let said = memory.restore_fails("image")?;
    assert!(
        said.contains("has 39 MiB free, and the image needs 97 MiB"),
        "{said}"
    );
    assert_eq!(lab.ask(10001)?.as_deref(), Some("ok 1"));
    other.delete()?;
    memory.restore("image")?;
    assert_eq!(lab.ask(PORT)?.as_deref(), Some("ok 1"));
    assert_eq!(memory.open_gpus()?, ["/dev/nvidia1"]);
    memory.delete()
}

fn persistence_mode_can_be_done_without(lab: &Lab, memory: &Bundle<'_>) -> Result<()> {
    lab.order("gpus 1\ndriver 580.95.05\npersistence-off 0")?;
    memory.restore_fails("image")?;
    lab.set("runc", "restore.persistence = \"ignore\"\n")?;
    memory.restore("image")?;
    assert_eq!(lab.ask(PORT)?.as_deref(), Some("ok 1"));
    lab.set("runc", "")
}

/// A paused container whose GPU state is in host memory, while others take its GPU.
fn resumes_are_refused(lab: &Lab, memory: &Bundle<'_>) -> Result<()> {
    lab.order("gpus 1")?;
    let verb = |verb| -> Result<String> {
        let output = memory.runtime(&[verb, &memory.id]).output()?;
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(verb("pause")?, "");
    memory.checkpoint("paused", &["--leave-running"])?;
    for (machine, part) in [
        (
            "gpus 1\nmemory 95",
            "has 95 MiB free, and the container needs 97 MiB",
        ),
        ("gpus 1\nmig 0", "is in MIG mode"),
        ("gpus 0", "is not on this machine any more (it has none)"),
    ] {
        lab.order(machine)?;
        let said = verb("resume")?;
        for part in [
            "resume of container memory refused",
            part,
            "nothing was changed",
        ] {
            assert!(said.contains(part), "{part:?} is missing in: {said}");
        }
        assert_eq!(memory.status()?, "paused", "{machine}");
    }
    lab.order("gpus 1\nmemory 97")?;
    assert_eq!(verb("resume")?, "");
    assert_eq!(memory.status()?, "running");
    assert_eq!(lab.ask(PORT)?.as_deref(), Some("ok 2"));
    // Nothing is left to do: it is paused and resumed like any other, whatever there is room for.
    lab.order("gpus 1\nmemory 1").context("no order")?;
    assert_eq!(verb("pause")?, "");
    assert_eq!(verb("resume")?, "");
    assert_eq!(lab.ask(PORT)?.as_deref(), Some("ok 3"));
    memory.delete()
}
