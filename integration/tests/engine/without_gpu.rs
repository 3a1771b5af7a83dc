//! A restore that succeeds has given every CUDA process its GPU.

use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{OPERATIONS_LOG, StasisHost};

/// The message of a restore that leaves a CUDA process without its GPU.
const NOT_RUNNING: [&str; 3] = [
    "restore of container",
    "CHECKPOINTED",
    "what had been restored was ended, the image is unchanged",
];

/// The message of a restore from an image without its manifest, but with its index.
const REFUSED: [&str; 2] = ["the image lacks its file", "/stasis.json"];

#[test]
fn a_restore_that_leaves_a_cuda_process_without_its_gpu_has_failed() -> Result<()> {
    let host = StasisHost::with_containerd(HostKind::sid()?)?;
    let counter = ["/bin/counter", "10000"];
    without_a_manifest(&host, "counter", &counter, ["101", "102"], &NOT_RUNNING)?;
    let memory = ["/bin/memcheck", "48"];
    without_a_manifest(&host, "memory", &memory, ["ok 0", "ok 1"], &REFUSED)?;
    without_one_of_three(&host)?;
    a_plain_container_is_restored_as_ever(&host)
}

/// If CRIU has all memory, the image then looks like a plain one; otherwise its index shows that it
/// is ours.
fn without_a_manifest(
    host: &StasisHost,
    id: &str,
    command: &[&str],
    answers: [&str; 2],
    told: &[&str],
) -> Result<()> {
    let gpu = Bundle::make(host, id, command)?;
    gpu.comes_up(10000, answers[0])?;
    gpu.checkpoint("good", &[])?;
    let manifest = gpu.image_path("good/stasis.json");
    let aside = gpu.image_path("aside.json");
    fs::rename(&manifest, &aside)?;
    assert_contains(&gpu.restore_fails("good")?, told);
    attached_restore_fails(&gpu, told)?;
    fs::rename(&aside, &manifest)?;
    gpu.restore("good")?;
    assert_eq!(host.ask(10000)?.as_deref(), Some(answers[1]));
    gpu.delete()
}

fn attached_restore_fails(gpu: &Bundle<'_>, told: &[&str]) -> Result<()> {
    let (image, bundle) = (gpu.image("good"), gpu.directory());
    let mut attached = gpu.runtime(&["restore", "--image-path", &image, "--work-path", &bundle]);
    attached.args(["--bundle", &bundle, &gpu.id]);
    let output = attached.output()?;
    assert_eq!(output.status.code(), Some(1));
    assert_contains(&String::from_utf8_lossy(&output.stderr), told);
    assert_eq!(gpu.status()?, "");
    Ok(())
}

fn without_one_of_three(host: &StasisHost) -> Result<()> {
    let tree = Bundle::make(host, "tree", &["/bin/tree", "10000"])?;
    tree.run()?;
    host.ask_until_up(10000)?;
    tree.checkpoint("good", &[])?;
    let path = tree.image_path("good/stasis.json");
    let good = fs::read(&path)?;
    let mut manifest: Value = serde_json::from_slice(&good)?;
    let processes = manifest["processes"].as_array_mut();
    processes.context("it lists no processes")?.remove(1);
    fs::write(&path, manifest.to_string())?;
    assert_contains(&tree.restore_fails("good")?, &NOT_RUNNING);
    fs::write(&path, &good)?;
    tree.restore("good")?;
    let answer = host.ask(10000)?;
    assert_eq!(answer.as_deref(), Some("102 202 302 402 502 602 702 2"));
    tree.delete()
}

fn a_plain_container_is_restored_as_ever(host: &StasisHost) -> Result<()> {
    fs::remove_file(host.path(OPERATIONS_LOG))?;
    let plain = Bundle::make(host, "plain", &["/bin/pause"])?;
    plain.change(|spec| spec["linux"]["devices"] = serde_json::json!([]))?;
    plain.run()?;
    plain.checkpoint("plain", &[])?;
    plain.restore("plain")?;
    assert_eq!(plain.status()?, "running");
    plain.delete()?;
    fs::remove_file(plain.image_path("plain/pstree.img"))?;
    let message = plain.restore_fails("plain")?;
    assert!(
        !message.contains("restore of container"),
        "not runc's: {message}"
    );
    assert!(!host.path(OPERATIONS_LOG).exists());
    Ok(())
}
