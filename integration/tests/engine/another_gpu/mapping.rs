//! The GPUs that take the places of others.

use anyhow::{Context, Result};
use serde_json::json;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::installed::StasisHost;

use super::{begin, notes};

/// Returns the UUID of a GPU of the stand-in.
fn uuid(gpu: usize) -> String {
    format!("GPU-57415349-5300-4000-8000-00000000000{}", gpu + 1)
}

/// Returns the UUIDs and the MiB of the process's GPUs, from the image's manifest.
fn recorded(memory: &Bundle<'_>, image: &str) -> Result<Vec<(String, u64)>> {
    let manifest = memory.manifest(image)?;
    let uses = manifest["processes"][0]["gpus"].as_array();
    let uses = uses
        .context("the manifest lists no GPU")?
        .iter()
        .map(|gpu| {
            let uuid = gpu["uuid"].as_str().unwrap_or_default().to_owned();
            (uuid, gpu["memory_bytes"].as_u64().unwrap_or(0) >> 20)
        });
    Ok(uses.collect())
}

pub(crate) fn the_gpu_that_is_given_takes_the_place(
    stasis: &StasisHost,
    memory: &Bundle<'_>,
    port: u16,
) -> Result<()> {
    begin(memory, port, &[0])?;
    assert_eq!(recorded(memory, "first")?, [(uuid(0), 96)]);
    memory.give(&[1])?;
    memory.restore("first")?;
    assert_eq!(stasis.ask(port)?.as_deref(), Some("ok 1"));
    assert_eq!(memory.open_gpus()?, ["/dev/nvidia1"]);
    let noted = notes(stasis)?;
    assert!(
        noted.contains(&format!("{} is restored to {}", uuid(0), uuid(1))),
        "{noted}"
    );
    // The nodes are those of the new specification, and its cgroup rules are in force.
    let nodes = memory.exec("cd /dev; ls -d nvidia*; stat -c %a nvidia1")?;
    assert_eq!(nodes, "nvidia-uvm\nnvidia1\nnvidiactl\n666");
    memory.exec(": </dev/nvidia1")?;
    assert!(memory.exec(": </dev/nvidia0").is_err());
    let stdout = memory.exec("mknod /tmp/old b 7 5; (: </tmp/old) 2>&1 || true")?;
    assert!(stdout.contains("not permitted"), "{stdout}");
    // The container can be checkpointed on this GPU like on any other, and stays there if it may.
    memory.checkpoint("second", &[])?;
    assert_eq!(recorded(memory, "second")?, [(uuid(1), 96)]);
    memory.give(&[0, 1])?;
    memory.restore("second")?;
    assert_eq!(stasis.ask(port)?.as_deref(), Some("ok 2"));
    assert_eq!(memory.open_gpus()?, ["/dev/nvidia1"]);
    // The first image still returns to the GPU where it was made.
    memory.delete()?;
    memory.give(&[0])?;
    memory.restore("first")?;
    assert_eq!(stasis.ask(port)?.as_deref(), Some("ok 1"));
    assert_eq!(memory.open_gpus()?, ["/dev/nvidia0"]);
    assert_eq!(notes(stasis)?, "null");
    Ok(())
}

pub(crate) fn all_gpus_of_a_process_are_mapped(
    stasis: &StasisHost,
    memory: &Bundle<'_>,
    port: u16,
) -> Result<()> {
    begin(memory, port, &[0, 1])?;
    // The process uses the first GPU, and has the second one open, too.
    assert_eq!(recorded(memory, "first")?, [(uuid(0), 96), (uuid(1), 0)]);
    memory.give(&[2])?;
    let message = memory.restore_fails("first")?;
    assert!(
        message.contains(&format!("{} (stasis stand-in GPU)", uuid(1))),
        "{message}"
    );
    memory.give(&[1, 3])?;
    memory.restore("first")?;
    assert_eq!(stasis.ask(port)?.as_deref(), Some("ok 1"));
    assert_eq!(memory.open_gpus()?, ["/dev/nvidia1", "/dev/nvidia3"]);
    memory.checkpoint("second", &[])?;
    let mut recorded = recorded(memory, "second")?;
    recorded.sort();
    assert_eq!(recorded, [(uuid(1), 0), (uuid(3), 96)]);
    Ok(())
}

/// The driver knows more GPUs than the process has open: it refuses once, then takes a wider map.
pub(crate) fn gpus_that_nobody_sees_are_mapped_when_the_driver_asks(
    stasis: &StasisHost,
    memory: &Bundle<'_>,
    port: u16,
) -> Result<()> {
    begin(memory, port, &[0])?;
    memory.give(&[1])?;
    stasis.inject("gpus 4\nrestore hidden error:1 2")?;
    let message = memory.restore_fails("first")?;
    assert_contains(&message, &["CUDA_ERROR_INVALID_VALUE (1)"]);
    stasis.inject("gpus 4\nrestore hidden error:1 1")?;
    memory.restore("first")?;
    assert_eq!(stasis.ask(port)?.as_deref(), Some("ok 1"));
    assert_eq!(memory.open_gpus()?, ["/dev/nvidia1"]);
    stasis.inject("gpus 4")
}

pub(crate) fn a_map_can_be_asked_for(
    stasis: &StasisHost,
    memory: &Bundle<'_>,
    port: u16,
) -> Result<()> {
    begin(memory, port, &[0])?;
    memory.give(&[0, 1, 2])?;
    let settings = |new| {
        format!(
            "restore.gpu_map = {{ \"{}\" = \"{}\" }}\n",
            uuid(0),
            uuid(new)
        )
    };
    stasis.set(&stasis.low_level, &settings(2))?;
    memory.restore("first")?;
    assert_eq!(stasis.ask(port)?.as_deref(), Some("ok 1"));
    assert_eq!(memory.open_gpus()?, ["/dev/nvidia2"]);
    memory.delete()?;
    // The container's annotation comes first.
    let annotate = |map: String| {
        memory.change(|spec| spec["annotations"] = json!({ "io.stasis.gpu-map": map }))
    };
    annotate(format!("{}={}", uuid(0), uuid(1)))?;
    memory.restore("first")?;
    assert_eq!(stasis.ask(port)?.as_deref(), Some("ok 1"));
    assert_eq!(memory.open_gpus()?, ["/dev/nvidia1"]);
    memory.delete()?;
    for (map, part) in [
        (
            format!("{}={}", uuid(0), uuid(3)),
            "the new container is not given",
        ),
        (uuid(0), "not of the form OLD=NEW"),
    ] {
        annotate(map)?;
        let message = memory.restore_fails("first")?;
        assert!(
            message.contains(part) && message.contains("io.stasis.gpu-map"),
            "{message}"
        );
        assert!(message.contains("nothing was changed"), "{message}");
    }
    Ok(())
}
