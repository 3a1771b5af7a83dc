//! A usual pod: two processors, and less memory than its GPU contents need in addition to its use.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::container::contents::{IN_MEMORY, ON_DISK};
use stasis_integration::container::memory_container::MemoryContainer;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::{needs, on_hosts};

use super::{MIB, has_holes};
use crate::limits::limit_file;
use crate::suspended::{charged, in_file, peak};

/// 48 MiB on the GPU, which this driver has in host memory, and 16 MiB beside it.
const LIMIT: u64 = 96 * MIB;
const PERIOD: u64 = 100_000;

on_hosts!(its_limits_are_kept: trixie_hybrid);

fn its_limits_are_kept(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    for (id, processors) in [("two", 2), ("one", 1)] {
        let pod = limited(stasis, id, processors)?;
        for settings in ["", IN_MEMORY, ON_DISK] {
            stasis.set(&stasis.low_level, settings)?;
            checkpointed(stasis, &pod, processors)
                .with_context(|| format!("{processors} processors, {settings:?}"))?;
        }
        pod.end()?;
    }
    Ok(())
}

fn limited<'l>(stasis: &'l StasisHost, id: &str, processors: u64) -> Result<MemoryContainer<'l>> {
    let bundle = Bundle::make(stasis, id, &["/bin/memcheck", "48", "10000"])?;
    bundle.limit_memory(LIMIT)?;
    let cpu = json!({ "quota": processors * PERIOD, "period": PERIOD });
    bundle.change(|spec| spec["linux"]["resources"]["cpu"] = cpu)?;
    MemoryContainer::of(stasis, bundle, 10000)
}

fn checkpointed(stasis: &StasisHost, pod: &MemoryContainer<'_>, processors: u64) -> Result<()> {
    let limit = limit_file(stasis, &pod.bundle)?;
    let before = charged(&limit)?;
    let workers = workers_in_checkpoint(stasis, pod)?;
    let helps = usize::try_from(processors)?.saturating_sub(1).max(1);
    ensure!((1..=helps).contains(&workers), "{workers} workers");
    pod.goes_on()?;
    ensure!(charged(&limit)? < before + 16 * MIB, "they are charged");
    are_kept(&limit)?;
    has_holes(pod, "goes-on")?;

    pod.bundle.checkpoint("ends", &[])?;
    has_holes(pod, "ends")?;
    pod.bundle.restore("ends")?;
    pod.goes_on()?;
    ensure!(in_file(stasis, &pod.bundle)? == 0, "a file is still mapped");
    are_kept(&limit_file(stasis, &pod.bundle)?)
}

fn are_kept(limit: &Path) -> Result<()> {
    ensure!(peak(limit)? <= LIMIT, "more was charged");
    assert_eq!(fs::read_to_string(limit)?.trim(), LIMIT.to_string());
    Ok(())
}

/// Returns the number of processes that have copied together with the driver's thread.
fn workers_in_checkpoint(stasis: &StasisHost, pod: &MemoryContainer<'_>) -> Result<usize> {
    stasis.hold_driver("checkpoint *", "armed")?;
    let checkpoint = pod
        .bundle
        .begin_checkpoint("goes-on", &["--leave-running"])?;
    stasis.until_driver_is_called()?;
    let workers = pod.workers()?.len();
    stasis.let_driver_go("armed")?;
    let output = checkpoint.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && said.is_empty(), "{said}");
    ensure!(stasis.operation("checkpoint")?["shared_out_bytes"].as_u64() >= Some(48 * MIB));
    ensure!(pod.workers()?.is_empty(), "some are left");
    Ok(workers)
}
