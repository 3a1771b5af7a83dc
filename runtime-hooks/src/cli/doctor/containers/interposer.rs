//! Libraries that take calls of CUDA on their way from the program to the driver: what they
//! remember of them need not fit what a restore brings back.

use std::ops::ControlFlow;

use stasis_linux::ProcessRef;
use stasis_linux::escape::escaped;
use stasis_linux::procfs::for_each_mapping;

use super::Process;
use crate::cli::doctor::Finding;
use crate::cli::doctor::warning;

/// How their files' names begin, and what they are (2026-11).
const KNOWN: [(&[u8], &str); 5] = [
    (b"libvgpu.so", "HAMi's quotas of GPU memory"),
    (b"libcuda-control.so", "gpu-manager's quotas of GPU memory"),
    (
        b"torch_memory_saver",
        "memory that is given back and taken again",
    ),
    (b"libcuinterpose", "Snapshot's own memory of the GPU"),
    (b"libnccl-checkpoint-shim.so", "NCCL's own checkpoints"),
];

/// One of them, in a process.
#[derive(Debug)]
pub(super) struct Interposer {
    /// As it may be shown.
    path: String,
    what: &'static str,
}

impl Interposer {
    pub(super) fn of(process: &ProcessRef) -> Option<Self> {
        let found = for_each_mapping(process.pid(), |mapping| match known(mapping.path) {
            Some(found) => ControlFlow::Break(found),
            None => ControlFlow::Continue(()),
        });
        found.ok().flatten()
    }
}

fn known(path: &[u8]) -> Option<Interposer> {
    let name = path.rsplit(|byte| *byte == b'/').next()?;
    let (_, what) = KNOWN.iter().find(|(start, _)| name.starts_with(start))?;
    Some(Interposer {
        path: escaped(path),
        what,
    })
}

pub(super) fn finding(name: &str, process: &Process) -> Option<Finding> {
    let Interposer { path, what } = process.interposer.as_ref()?;
    Some(warning(
        "cuda-interposer",
        format!("{name} has {path} between it and the driver ({what}), which was not tried"),
        "start it without (LD_PRELOAD, /etc/ld.so.preload), or compare a restore first",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_known_by_their_files() {
        for path in [
            "/usr/local/vgpu/libvgpu.so",
            "/venv/torch_memory_saver_hook_mode_preload.abi3.so",
        ] {
            let found = known(path.as_bytes()).unwrap();
            assert_eq!(found.path, path);
        }
        for path in ["/usr/lib/libjemalloc.so.2", "/libvgpu.so/libcuda.so.1", ""] {
            assert!(known(path.as_bytes()).is_none(), "{path}");
        }
    }
}
