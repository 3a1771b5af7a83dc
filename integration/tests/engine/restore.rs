//! Restores: detached and attached, refused and failed. A failed restore leaves no container, and
//! the image as it was.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::container::image_files::contents;
use stasis_integration::container::image_files::unlist;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

on_hosts!(all_cases: sid_v2, trixie);

fn all_cases(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::with_containerd(kind)?;
    let memory = Bundle::make(stasis, "memory", &["/bin/memcheck", "32", "10000"])?;
    memory.comes_up(10000, "ok 0")?;
    memory.checkpoint("good", &[])?;
    assert_eq!(memory.status()?, "");
    let image = contents(&memory.image_path("good"))?;
    let cases: [(&str, Case); 4] = [
        ("manifest", manifests_that_cannot_be_believed),
        ("room", gpu_without_room),
        ("out of memory", driver_finds_no_room),
        ("criu", criu_fails),
    ];
    for (name, case) in cases {
        case(stasis, &memory).context(name)?;
        stasis.inject("")?;
        assert_eq!(contents(&memory.image_path("good"))?, image, "after {name}");
    }
    memory.restore("good")?;
    assert_eq!(memory.status()?, "running");
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 1"));
    // A second restore under the same id is refused and does not touch the container that runs.
    assert!(memory.restore("good").is_err());
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 2"));
    memory.delete()?;
    attached_restore_gives_the_exit_code(stasis, &memory)?;
    attached_restore_without_room_ends(stasis, &memory)
}

type Case = fn(&StasisHost, &Bundle<'_>) -> Result<()>;

fn manifests_that_cannot_be_believed(stasis: &StasisHost, memory: &Bundle<'_>) -> Result<()> {
    stasis.run(&["cp", "-a", &memory.image("good"), &memory.image("bad")])?;
    let path = memory.image_path("bad/stasis.json");
    let good = fs::read(&path)?;
    let half = &good[..good.len() / 2];
    let other = replaced(&good, "\"version\":7", "\"version\":8")?;
    let pid = replaced(&good, "\"pid\":1", "\"pid\":0")?;
    let huge = vec![b' '; (96 << 20) + 1];
    let cases: [(&[u8], &str); 5] = [
        (half, "is damaged"),
        (b"", "is damaged"),
        (other.as_bytes(), "version 8 was written by"),
        (pid.as_bytes(), "pid 0 is impossible"),
        (&huge, "it is larger than 100663296 bytes"),
    ];
    for (text, part) in cases {
        fs::write(&path, text)?;
        let message = memory.restore_fails("bad")?;
        assert_contains(
            &message,
            &["restore of container memory refused", "stasis.json", part],
        );
        assert_contains(&message, &["nothing was changed"]);
    }
    fs::remove_file(&path)?;
    std::os::unix::fs::symlink("/etc/shadow", &path)?;
    assert_contains(&memory.restore_fails("bad")?, &["is not a regular file"]);
    // A repaired image restores.
    fs::remove_file(&path)?;
    fs::write(&path, &good)?;
    memory.restore("bad")?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 1"));
    memory.delete()
}

fn replaced(text: &[u8], old: &str, new: &str) -> Result<String> {
    let text = String::from_utf8(text.to_owned())?;
    ensure!(text.contains(old), "no {old} in {text}");
    Ok(text.replace(old, new))
}

fn gpu_without_room(stasis: &StasisHost, memory: &Bundle<'_>) -> Result<()> {
    stasis.inject("memory 90")?;
    let message = memory.restore_fails("good")?;
    assert_contains(
        &message,
        &[
            "refused",
            "has 90 MiB free",
            "the image needs 97 MiB",
            "make room",
        ],
    );
    Ok(())
}

/// Another process took the room after the check for it.
fn driver_finds_no_room(stasis: &StasisHost, memory: &Bundle<'_>) -> Result<()> {
    stasis.inject("restore memory error:2")?;
    let message = memory.restore_fails("good")?;
    assert_contains(
        &message,
        &["gpu restore of process", "CUDA_ERROR_OUT_OF_MEMORY (2)"],
    );
    assert_contains(
        &message,
        &[
            "MiB free, and the image needs 97 MiB",
            "the image is unchanged",
        ],
    );
    assert!(stasis.is_silent(10000)?);
    Ok(())
}

fn criu_fails(stasis: &StasisHost, memory: &Bundle<'_>) -> Result<()> {
    stasis.run(&["cp", "-a", &memory.image("good"), &memory.image("holey")])?;
    unlist(&memory.image_path("holey"))?;
    fs::write(memory.image_path("holey/pstree.img"), "not an image")?;
    let message = memory.restore_fails("holey")?;
    assert_contains(
        &message,
        &["runc restore ended with exit status: 1", "CRIU: Error"],
    );
    let log = message
        .split("its log is kept as ")
        .nth(1)
        .and_then(|rest| rest.split(';').next());
    assert!(
        log.is_some_and(|log| stasis.path(log).exists()),
        "{message}"
    );
    Ok(())
}

fn attached_restore(memory: &Bundle<'_>) -> Command {
    let (image, bundle) = (memory.image("good"), memory.directory());
    let mut command = memory.runtime(&["restore", "--image-path", &image, "--work-path", &bundle]);
    command.args(["--bundle", &bundle, &memory.id]);
    command.stderr(Stdio::null());
    command
}

/// Without `--detach` the runtime is the container's parent and ends with its exit code.
fn attached_restore_gives_the_exit_code(stasis: &StasisHost, memory: &Bundle<'_>) -> Result<()> {
    for (signal, expected) in [("KILL", 137), ("TERM", 0)] {
        let mut attached = attached_restore(memory).spawn()?;
        assert_eq!(stasis.ask_until_up(10000)?, "ok 1");
        // The runtime waits for the container's end, and blocks no other operation meanwhile.
        let record = memory.record();
        wait_until_clear(|| Ok(record.exists().then(|| "the restore".to_owned())))?;
        memory.checkpoint("attached", &["--leave-running"])?;
        assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 2"));
        assert!(
            memory
                .runtime(&["kill", &memory.id, signal])
                .status()?
                .success()
        );
        assert_eq!(attached.wait()?.code(), Some(expected), "SIG{signal}");
        memory.delete()?;
    }
    Ok(())
}

fn attached_restore_without_room_ends(stasis: &StasisHost, memory: &Bundle<'_>) -> Result<()> {
    stasis.inject("restore memory error:2")?;
    let status = attached_restore(memory).status()?;
    assert_eq!(status.code(), Some(1));
    assert_eq!(memory.status()?, "");
    stasis.inject("")
}
