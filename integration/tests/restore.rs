//! Restores: detached and attached, refused and failed. A failed restore leaves no container, and the
//! image as it was.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use stasis_integration::bundle::Bundle;
use stasis_integration::host::{Cgroups, Suite};
use stasis_integration::lab::Lab;
use stasis_integration::message::says;

#[test]
fn with_runc() -> Result<()> {
    all_cases(&Lab::start(Suite::Sid, Cgroups::V2, "runc")?)
}

#[test]
fn with_an_older_runc() -> Result<()> {
    all_cases(&Lab::start(Suite::Trixie, Cgroups::oldest()?, "runc")?)
}

fn all_cases(lab: &Lab) -> Result<()> {
    let _containerd = lab.containerd()?;
    let memory = Bundle::make(lab, "memory", &["/bin/memcheck", "32", "10000"])?;
    memory.run()?;
    assert_eq!(lab.ask_until_up(10000)?, "ok 0");
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
        case(lab, &memory).context(name)?;
        lab.order("")?;
        assert_eq!(contents(&memory.image_path("good"))?, image, "after {name}");
    }
    memory.restore("good")?;
    assert_eq!(memory.status()?, "running");
    assert_eq!(lab.ask(10000)?.as_deref(), Some("ok 1"));
    // A second restore under the same id is refused and does not touch the container that runs.
    assert!(memory.restore("good").is_err());
    assert_eq!(lab.ask(10000)?.as_deref(), Some("ok 2"));
    memory.delete()?;
    attached_restore_gives_the_exit_code(lab, &memory)?;
    attached_restore_without_room_ends(lab, &memory)
}

type Case = fn(&Lab, &Bundle<'_>) -> Result<()>;

/// Every file of a directory with a digest of its contents. CRIU's statistics of the last operation
/// are no part of an image.
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

fn manifests_that_cannot_be_believed(lab: &Lab, memory: &Bundle<'_>) -> Result<()> {
    lab.host
        .run(&["cp", "-a", &memory.image("good"), &memory.image("bad")])?;
    let path = memory.image_path("bad/stasis.json");
    let good = fs::read(&path)?;
    let half = &good[..good.len() / 2];
    let other = String::from_utf8_lossy(&good).replace("\"version\": 3", "\"version\": 7");
    let pid = String::from_utf8_lossy(&good).replace("\"pid\": 1", "\"pid\": 0");
    let huge = vec![b' '; (1 << 20) + 1];
    let cases: [(&[u8], &str); 5] = [
        (half, "is damaged"),
        (b"", "is damaged"),
        (other.as_bytes(), "has version 7"),
        (pid.as_bytes(), "pid 0 is impossible"),
        (&huge, "a manifest has at most"),
    ];
    for (text, part) in cases {
        fs::write(&path, text)?;
        let said = memory.restore_fails("bad")?;
        says(
            &said,
            &["restore of container memory refused", "stasis.json", part],
        );
        says(&said, &["nothing was changed"]);
    }
    fs::remove_file(&path)?;
    std::os::unix::fs::symlink("/etc/shadow", &path)?;
    says(&memory.restore_fails("bad")?, &["is not a regular file"]);
    // What is good again restores.
    fs::remove_file(&path)?;
    fs::write(&path, &good)?;
    memory.restore("bad")?;
    assert_eq!(lab.ask(10000)?.as_deref(), Some("ok 1"));
    memory.delete()
}

fn gpu_without_room(lab: &Lab, memory: &Bundle<'_>) -> Result<()> {
    lab.order("memory 90")?;
    let said = memory.restore_fails("good")?;
    says(
        &said,
        &[
            "refused",
            "has 90 MiB free",
            "the image needs 97 MiB",
            "make room",
        ],
    );
    Ok(())
}

/// Somebody took the room after it was looked for.
fn driver_finds_no_room(lab: &Lab, memory: &Bundle<'_>) -> Result<()> {
    lab.order("restore memory error:2")?;
    let said = memory.restore_fails("good")?;
    says(
        &said,
        &["gpu restore of process", "CUDA_ERROR_OUT_OF_MEMORY (2)"],
    );
    says(
        &said,
        &[
            "MiB free, and the image needs 97 MiB",
            "the image is unchanged",
        ],
    );
    assert_eq!(lab.ask(10000)?, None);
    Ok(())
}

fn criu_fails(lab: &Lab, memory: &Bundle<'_>) -> Result<()> {
    lab.host
        .run(&["cp", "-a", &memory.image("good"), &memory.image("holey")])?;
    fs::write(memory.image_path("holey/pstree.img"), "not an image")?;
    let said = memory.restore_fails("holey")?;
    says(
        &said,
        &["runc restore ended with exit status: 1", "criu said: Error"],
    );
    let log = said
        .split("its log is kept as ")
        .nth(1)
        .and_then(|rest| rest.split(';').next());
    assert!(log.is_some_and(|log| lab.host.path(log).exists()), "{said}");
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
fn attached_restore_gives_the_exit_code(lab: &Lab, memory: &Bundle<'_>) -> Result<()> {
    for (signal, expected) in [("KILL", 137), ("TERM", 0)] {
        let mut attached = attached_restore(memory).spawn()?;
        assert_eq!(lab.ask_until_up(10000)?, "ok 1");
        // The runtime waits for the container's end, and does not keep others from it meanwhile.
        let record = lab.host.path("/run/stasis/containers/%run%bundles/memory");
        while record.exists() {
            sleep(Duration::from_millis(2));
        }
        memory.checkpoint("attached", &["--leave-running"])?;
        assert_eq!(lab.ask(10000)?.as_deref(), Some("ok 2"));
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

fn attached_restore_without_room_ends(lab: &Lab, memory: &Bundle<'_>) -> Result<()> {
    lab.order("restore memory error:2")?;
    let status = attached_restore(memory).status()?;
    assert_eq!(status.code(), Some(1));
    assert_eq!(memory.status()?, "");
    lab.order("")
}
