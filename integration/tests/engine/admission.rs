//! Restores and resumes that are refused before anything is started, leave everything as it was,
//! and succeed once the reason is gone.

use anyhow::{Context, Result};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::container::image_files::contents;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::{needs, on_hosts};

const PORT: u16 = 10000;

on_hosts!(all_cases: sid_v2, trixie);

fn all_cases(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    let memory = Bundle::make(stasis, "memory", &["/bin/memcheck", "32", "10000"])?;
    stasis.inject("gpus 2\ndriver 580.95.05")?;
    memory.give(&[0])?;
    memory.comes_up(PORT, "ok 0")?;
    memory.checkpoint("image", &[])?;
    restores_are_refused(stasis, &memory)?;
    persistence_mode_can_be_done_without(stasis, &memory)?;
    resumes_are_refused(stasis, &memory)?;
    room_is_made(stasis)
}

fn restores_are_refused(stasis: &StasisHost, memory: &Bundle<'_>) -> Result<()> {
    let (image, spec) = (contents(&memory.image_path("image"))?, memory.spec()?);
    // The stand-in's machine, the GPUs that the container is given, and parts of the message.
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
        stasis.inject(&format!("gpus 2\ndriver 580.95.05\n{machine}"))?;
        memory.give(gpus)?;
        let given = memory.spec()?;
        let message = memory.restore_fails("image")?;
        assert_contains(
            &message,
            &[&["refused", "nothing was changed"], parts].concat(),
        );
        assert_eq!(contents(&memory.image_path("image"))?, image, "{machine}");
        assert_eq!(memory.spec()?, given, "{machine}");
    }
    // A GPU that is not given may be in any state, and one that knows no modes will do.
    stasis.inject("gpus 2\ndriver 580.105.08\nmemory 1 1\nmig 1\nold 0")?;
    memory.change(|now| *now = spec)?;
    memory.restore("image")?;
    assert_eq!(stasis.ask(PORT)?.as_deref(), Some("ok 1"));
    memory.delete()
}

/// Another container uses the GPU that the restored one is to get.
fn room_is_made(stasis: &StasisHost) -> Result<()> {
    stasis.inject("gpus 2\nmemory 120")?;
    let memory = Bundle::make(stasis, "moving", &["/bin/memcheck", "32", "10000"])?;
    let other = Bundle::make(stasis, "other", &["/bin/memcheck", "16", "10001"])?;
    memory.give(&[0])?;
    memory.comes_up(PORT, "ok 0")?;
    memory.checkpoint("image", &[])?;
    other.give(&[1])?;
    other.comes_up(10001, "ok 0")?;
    memory.give(&[1])?;
    let message = memory.restore_fails("image")?;
    assert_contains(&message, &["has 39 MiB free, and the image needs 97 MiB"]);
    assert_eq!(stasis.ask(10001)?.as_deref(), Some("ok 1"));
    other.delete()?;
    memory.restore("image")?;
    assert_eq!(stasis.ask(PORT)?.as_deref(), Some("ok 1"));
    assert_eq!(memory.open_gpus()?, ["/dev/nvidia1"]);
    memory.delete()
}

fn persistence_mode_can_be_done_without(stasis: &StasisHost, memory: &Bundle<'_>) -> Result<()> {
    stasis.inject("gpus 1\ndriver 580.95.05\npersistence-off 0")?;
    memory.restore_fails("image")?;
    stasis.set("runc", "restore.persistence = \"ignore\"\n")?;
    memory.restore("image")?;
    assert_eq!(stasis.ask(PORT)?.as_deref(), Some("ok 1"));
    stasis.set("runc", "")
}

/// A paused container whose GPU state is in host memory, while others take its GPU.
fn resumes_are_refused(stasis: &StasisHost, memory: &Bundle<'_>) -> Result<()> {
    stasis.inject("gpus 1")?;
    let verb = |verb| -> Result<String> {
        let output = memory.runtime(&[verb, &memory.id]).output()?;
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(verb("pause")?, "");
    memory.checkpoint("paused", &["--leave-running"])?;
    for (machine, part) in [
        ("gpus 1\nmig 0", "is in MIG mode"),
        ("gpus 0", "is not on this machine any more (it has none)"),
    ] {
        stasis.inject(machine)?;
        let message = verb("resume")?;
        assert_contains(
            &message,
            &[
                "resume of container memory refused",
                part,
                "nothing was changed",
            ],
        );
        assert_eq!(memory.status()?, "paused", "{machine}");
    }
    // A lack of room refuses no resume: the container goes on, and gets its GPU back by itself.
    stasis.inject("gpus 1\nmemory 95")?;
    assert_eq!(verb("resume")?, "");
    assert_eq!(memory.status()?, "running");
    let notes = stasis.operation("resume")?["notes"].to_string();
    assert_contains(&notes, &["has 95 MiB free", "needs 97 MiB there"]);
    stasis.inject("gpus 1\nmemory 97")?;
    assert_eq!(stasis.ask_until_up(PORT)?, "ok 2");
    stasis.nothing_to_put_right()?;
    // It has its GPU: it is paused and resumed like any other, whatever room there is.
    stasis.inject("gpus 1\nmemory 1").context("no order")?;
    assert_eq!(verb("pause")?, "");
    assert_eq!(verb("resume")?, "");
    assert_eq!(stasis.ask(PORT)?.as_deref(), Some("ok 3"));
    memory.delete()
}
