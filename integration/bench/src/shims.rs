//! Two shims side by side: containerd's, written in Go, and ours.

use std::path::PathBuf;

use anyhow::{Context, Result};
use stasis_integration::host::c_build;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::host::{Cgroups, Suite};

/// The runtimes by which containerd knows the shims: containerd's own, then ours. Cases take them
/// in turns, so that whatever the machine does meanwhile hits both.
pub(crate) const RUNTIMES: [&str; 2] = ["io.containerd.runc.v2", "io.containerd.stasis.v2"];

/// Where containerd, by its PATH, finds our shim.
const SHIM: &str = "/usr/local/bin/containerd-shim-stasis-v2";
/// containerd's shim, where its package has it.
const GO_SHIM: &str = "/usr/bin/containerd-shim-runc-v2";
/// Names another program to be measured as ours. Containerd's own there shows how far the figures
/// can be trusted: all ratios have to be 1.
const OTHER_SHIM: &str = "STASIS_BENCH_SHIM";

/// A test host with both shims.
pub(crate) fn stasis_host() -> Result<StasisHost> {
    let shim = match std::env::var_os(OTHER_SHIM) {
        Some(other) => PathBuf::from(other),
        None => c_build::programs()?.join("containerd-shim-stasis-v2"),
    };
    let stasis = StasisHost::start(Suite::Sid, Cgroups::oldest()?, "runc")?;
    stasis
        .host
        .install(&shim, SHIM)
        .context("build the workspace first (make bench does)")?;
    // Ours lies in memory, theirs on a disk: executing it there is a few percent faster or slower.
    stasis.run(&["cp", GO_SHIM, "/usr/local/bin/"])?;
    Ok(stasis)
}

/// Calls `once(runtime, id)` `rounds` times for each of the two, in turns, and keeps what each
/// gave, after `warm_ups` that are not kept.
pub(crate) fn in_turns<T>(
    warm_ups: usize,
    rounds: usize,
    mut once: impl FnMut(&str, &str) -> Result<T>,
) -> Result<[Vec<T>; 2]> {
    let mut kept = [Vec::new(), Vec::new()];
    for round in 0..warm_ups + rounds {
        // Each goes first as often as the other, and meets its own traces as often as the other's.
        for index in [round % 2, 1 - round % 2] {
            let runtime = RUNTIMES[index];
            let id = format!("bench-{round}-{index}");
            let result =
                once(runtime, &id).with_context(|| format!("round {round} of {runtime}"))?;
            if round >= warm_ups {
                kept[index].push(result);
            }
        }
    }
    Ok(kept)
}
