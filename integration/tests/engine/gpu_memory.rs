//! The amount of a container's GPU memory decides on the room that its checkpoint and restore need:
//! it is measured when it can change no more, and an amount unknown to NVML does not count as none.

use anyhow::{Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::{needs, on_hosts};

const PORT: u16 = 10240;

on_hosts!(all_cases: sid_v2);

fn all_cases(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    what_nvml_does_not_know_is_not_nothing(stasis, "no-figures")?;
    what_nvml_does_not_know_is_not_nothing(stasis, "no-processes")?;
    what_is_taken_before_the_lock_counts(stasis)
}

fn what_nvml_does_not_know_is_not_nothing(stasis: &StasisHost, machine: &str) -> Result<()> {
    let memory = Bundle::make(stasis, machine, &["/bin/memcheck", "32", "10240"])?;
    stasis.inject(machine)?;
    memory.comes_up(PORT, "ok 0")?;
    memory.checkpoint("image", &[])?;
    memory.delete()?;
    stasis.inject("memory 95")?;
    let message = memory.restore_fails("image")?;
    assert_contains(&message, &["has 95 MiB free", "the image needs 97 MiB"]);
    stasis.inject("")?;
    memory.restore("image")?;
    assert_eq!(stasis.ask(PORT)?.as_deref(), Some("ok 1"));
    memory.delete()
}

/// The workload takes memory after the pre-flight, while it is being locked.
fn what_is_taken_before_the_lock_counts(stasis: &StasisHost) -> Result<()> {
    let growing = Bundle::make(
        stasis,
        "growing",
        &["/bin/memcheck", "16", "10240", "grow=64"],
    )?;
    growing.comes_up(PORT, "ok 0")?;
    stasis.hold_driver("lock growing", "lock")?;
    let child = growing.begin_checkpoint("image", &["--leave-running"])?;
    stasis.until_driver_is_called()?;
    assert_eq!(stasis.ask(PORT)?.as_deref(), Some("ok 1"));
    stasis.let_driver_go("lock")?;
    let output = child.wait_with_output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{stderr}");
    let manifest = growing.manifest("image")?;
    let bytes = manifest["processes"][0]["gpus"][0]["memory_bytes"].as_u64();
    ensure!(bytes > Some((16 + 64 + 64) << 20), "{manifest}");
    stasis.inject("")?;
    growing.delete()
}
