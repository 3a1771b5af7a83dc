//! A process of an image: what CRIU has of it, and its GPU state.

use serde::Serialize;

use crate::cuda::gpu_use::CudaProcess;
use crate::image::contents;
use crate::image::manifest::Manifest;

/// A process of an image.
#[derive(Debug, Serialize)]
pub(super) struct Process {
    #[serde(flatten)]
    pub(super) of_criu: contents::Process,
    /// Whether its GPU state is in the image.
    pub(super) cuda: bool,
    /// Its memory on all GPUs.
    pub(super) gpu_bytes: u64,
    /// How many ancestors it has in the image.
    #[serde(skip)]
    pub(super) depth: usize,
}

/// Those of CRIU, with what the manifest says of them.
pub(super) fn joined(
    processes: Vec<contents::Process>,
    manifest: Option<&Manifest>,
) -> Vec<Process> {
    let mut joined: Vec<Process> = Vec::new();
    // Of the one before: each comes behind its parent, and before that one's next child.
    let mut ancestors: Vec<u32> = Vec::new();
    for of_criu in processes {
        while ancestors.last().is_some_and(|pid| *pid != of_criu.parent) {
            ancestors.pop();
        }
        let depth = ancestors.len();
        ancestors.push(of_criu.pid);
        let cuda = manifest.and_then(|manifest| with_pid(manifest, of_criu.pid));
        joined.push(Process {
            cuda: cuda.is_some(),
            gpu_bytes: cuda.map_or(0, bytes),
            depth,
            of_criu,
        });
    }
    joined
}

fn with_pid(manifest: &Manifest, pid: u32) -> Option<&CudaProcess> {
    let pid = i32::try_from(pid).ok()?;
    manifest.processes.iter().find(|process| process.pid == pid)
}

fn bytes(process: &CudaProcess) -> u64 {
    let bytes = process.gpus.iter().map(|gpu| gpu.memory_bytes);
    bytes.fold(0, u64::saturating_add)
}
