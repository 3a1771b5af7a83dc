//! A GPU that has fallen off the bus, and an NVML that hangs: containers without a part in it go
//! on.

use anyhow::{Context, Result};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;

const LOST: &str = "gpus 2\nlost 1";

#[test]
fn concerns_its_users_alone() -> Result<()> {
    let stasis = StasisHost::of(HostKind::sid()?)?;
    stasis_integration::needs!(StandIn);
    let _containerd = stasis.containerd()?;
    stasis.inject("gpus 2")?;
    let healthy = on_gpu(&stasis, "healthy", 0, 10000)?;
    let broken = on_gpu(&stasis, "broken", 1, 10001)?;

    stasis.inject(LOST)?;
    let message = broken.checkpoint_fails("image", &[])?;
    assert_contains(
        &message,
        &["lost-gpu", "/dev/nvidia1", "GPU", "nothing was changed"],
    );
    assert_eq!(stasis.ask(10001)?.as_deref(), Some("ok 1"));

    // Paused by its caller, left running, resumed; then ended and restored.
    healthy.pause()?;
    healthy.checkpoint("first", &["--leave-running"])?;
    healthy.resume()?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 1"));
    healthy.checkpoint("second", &[])?;
    healthy.restore("second")?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 2"));

    a_paused_container_waits_for_its_gpu(&stasis, &broken)?;
    healthy.delete()?;
    broken.delete()
}

/// The container's GPU is lost between the checkpoint and the resume.
fn a_paused_container_waits_for_its_gpu(stasis: &StasisHost, broken: &Bundle<'_>) -> Result<()> {
    stasis.inject("gpus 2")?;
    broken.pause()?;
    broken.checkpoint("image", &["--leave-running"])?;
    stasis.inject(LOST)?;
    let refused = broken.resume().err().context("it has no GPU")?;
    assert_contains(
        &refused.to_string(),
        &["[nvml]", "NVML cannot report on it"],
    );
    stasis.inject("gpus 2")?;
    broken.resume()?;
    assert_eq!(stasis.ask(10001)?.as_deref(), Some("ok 2"));
    Ok(())
}

#[test]
fn nvml_that_hangs_is_an_error() -> Result<()> {
    let stasis = StasisHost::of(HostKind::sid()?)?;
    stasis_integration::needs!(StandIn);
    let _containerd = stasis.containerd()?;
    stasis.inject("")?;
    let memory = on_gpu(&stasis, "memory", 0, 10000)?;
    nvml_hangs(&stasis)?;
    let message = memory.checkpoint_fails("image", &[])?;
    assert_contains(
        &message,
        &["[nvml]", "no answer within 1 s", "nothing was changed"],
    );
    nvml_answers(&stasis)?;
    memory.checkpoint("image", &[])?;
    nvml_hangs(&stasis)?;
    let message = memory.restore_fails("image")?;
    assert_contains(&message, &["[nvml]", "no answer within 1 s"]);
    nvml_answers(&stasis)?;
    memory.restore("image")?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 1"));
    memory.delete()
}

fn nvml_hangs(stasis: &StasisHost) -> Result<()> {
    stasis.set("runc", "deadlines.nvml_s = 1\n")?;
    stasis.inject("nvml-hangs")
}

fn nvml_answers(stasis: &StasisHost) -> Result<()> {
    stasis.set("runc", "")?;
    stasis.inject("")
}

/// Starts a container on one GPU, which answers "ok 0".
fn on_gpu<'l>(stasis: &'l StasisHost, id: &str, gpu: usize, port: u16) -> Result<Bundle<'l>> {
    let bundle = Bundle::make(stasis, id, &["/bin/memcheck", "16", &port.to_string()])?;
    bundle.give(&[gpu])?;
    bundle.comes_up(port, "ok 0")?;
    Ok(bundle)
}
