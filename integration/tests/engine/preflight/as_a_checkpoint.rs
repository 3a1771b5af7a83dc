//! `stasis check` asks what a checkpoint asks, and both refuse by the same kind.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::container::contents::{DISK, ON_DISK};
use stasis_integration::host::installed::{CUDA_CHECKPOINT, StasisHost};

use super::{check, start};

pub(crate) fn a_check_asks_what_a_checkpoint_asks(stasis: &StasisHost) -> Result<()> {
    no_process_uses_cuda(stasis).context("no CUDA")?;
    let (job, _) = start(stasis, "asked", "exec /bin/memcheck 32 10121", 10121)?;
    the_disk_of_contents_is_full(stasis, &job).context("disk")?;
    there_is_no_plugin(stasis)?;
    nobody_knows_the_gpus(stasis, &job).context("unknown GPUs")?;
    assert_eq!(stasis.ask(10121)?.as_deref(), Some("ok 1"));
    job.delete()
}

fn refused(stasis: &StasisHost, job: &Bundle<'_>, kind: &str) -> Result<Value> {
    let (code, stdout, stderr) = check(stasis, &["--json", "--root", ROOT, &job.id])?;
    ensure!(code == Some(1), "{stdout}{stderr}");
    let report: Value = serde_json::from_str(&stdout)?;
    ensure!(report["kind"] == kind, "{report}");
    let message = job.checkpoint_fails("refused", &[])?;
    assert_contains(
        &message,
        &[&format!("refused [{kind}]"), "nothing was changed"],
    );
    Ok(report)
}

fn begins(stasis: &StasisHost, id: &str) -> Result<String> {
    let (code, stdout, stderr) = check(stasis, &["--root", ROOT, id])?;
    ensure!(code == Some(0), "{stdout}{stderr}");
    Ok(stdout)
}

/// The container has a GPU, and CRIU could not dump it as it is.
fn no_process_uses_cuda(stasis: &StasisHost) -> Result<()> {
    let script = ": >/dev/gdrdrv; exec 9</dev/gdrdrv; exec /bin/plain 10120 24";
    let (idle, _) = start(stasis, "idle", script, 10120)?;
    let report = refused(stasis, &idle, "blocked")?;
    ensure!(report["blockers"][0]["kind"] == "gdrdrv", "{report}");
    // Without a GPU, the low-level runtime alone makes the checkpoint.
    idle.delete()?;
    idle.change(|spec| spec["linux"]["devices"] = serde_json::json!([]))?;
    idle.run()?;
    stasis.ask_until_up(10120)?;
    let text = begins(stasis, "idle")?;
    assert_contains(
        &text,
        &["the low-level runtime would make a plain checkpoint"],
    );
    idle.delete()
}

fn the_disk_of_contents_is_full(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    stasis.set("runc", ON_DISK)?;
    // With a tmpfs, the contents would go into the image.
    stasis.host.mount_disk(1 << 20, DISK)?;
    let refused = refused(stasis, job, "no-space");
    stasis.run(&["umount", DISK])?;
    refused?;
    begins(stasis, &job.id)?;
    stasis.set("runc", "")
}

fn there_is_no_plugin(stasis: &StasisHost) -> Result<()> {
    stasis.set("runc", "gpu_contents.plugin = \"/nowhere.so\"\n")?;
    let text = begins(stasis, "asked")?;
    assert_contains(&text, &["the driver and CRIU move", "/nowhere.so"]);
    stasis.set("runc", "")
}

/// Another program has freed the GPU.
fn nobody_knows_the_gpus(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let pid = job.pid()?.to_string();
    let toggle = [CUDA_CHECKPOINT, "--toggle", "--pid", &pid];
    stasis.run(&toggle)?;
    let report = refused(stasis, job, "blocked")?;
    ensure!(report["blockers"][0]["kind"] == "unknown-gpus", "{report}");
    stasis.set("runc", "preflight.allow = [\"unknown-gpus\"]\n")?;
    begins(stasis, "asked")?;
    job.checkpoint("allowed", &["--leave-running"])?;
    stasis.set("runc", "")?;
    stasis.run(&toggle)?;
    begins(stasis, "asked").map(drop)
}
