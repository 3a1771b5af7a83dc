//! Finding what keeps a container from being checkpointed (`blocker.rs` has the words).
//!
//! Only looks: at the states that the driver told, at NVML's facts and at `/proc`.

use std::io;

use stasis_config::BlockerKind;

use crate::blocker::Finding;
use crate::connections::Connections;
use crate::cuda::CudaState;
use crate::gpu::{Inventory, Mig};
use crate::members::Members;
use crate::nccl::{Candidate, restores_shared_memory, sharing_ranks};
use crate::process::ProcessRef;
use crate::traces::{Environment, Holds, IO_URING};

/// The capabilities that every user of NVML may open: MIG's configuration and its monitor. Those of the
/// slices have higher numbers.
const CAPABILITIES_OF_ALL: [&str; 2] = [
    "/dev/nvidia-caps/nvidia-cap1",
    "/dev/nvidia-caps/nvidia-cap2",
];

/// What is known of a container when its checkpoint is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// All its processes.
    pub processes: &'a [ProcessRef],
    /// Those that use CUDA, with what the driver says of them.
    pub members: &'a Members,
    /// The machine's GPUs.
    pub inventory: &'a Inventory,
}

/// All blockers of all processes.
///
/// # Errors
/// What reading `/proc` said.
pub fn find(scene: &Scene<'_>) -> io::Result<Vec<Finding>> {
    let mut found = Vec::new();
    let mut holds = Vec::with_capacity(scene.processes.len());
    for process in scene.processes {
        let mps_directory = mps_directory(process)?;
        let held = Holds::read(process, Some(mps_directory.clone()))?;
        let state = scene.state_of(process);
        let mut add = |kind, evidence: Option<String>| {
            found.extend(evidence.map(|evidence| finding(kind, process, evidence)));
        };
        if let Some(state) = state {
            add(BlockerKind::FailedState, failed(state));
            add(
                BlockerKind::Mps,
                mps(scene.inventory, process, &held, &mps_directory),
            );
            add(BlockerKind::Mig, mig(scene.inventory, process, &held));
            add(BlockerKind::ManagedMemory, managed_memory(&held));
        } else {
            add(BlockerKind::NvidiaDevice, nvidia_device(&held));
        }
        add(BlockerKind::Gdrdrv, held_below(&held, "/dev/gdrdrv"));
        add(BlockerKind::Rdma, held_below(&held, "/dev/infiniband/"));
        add(BlockerKind::IoUring, io_uring(&held));
        holds.push((process, held));
    }
    if !restores_shared_memory(&scene.inventory.driver_version) {
        found.extend(nccl(scene, &holds)?);
    }
    Ok(found)
}

fn nccl(scene: &Scene<'_>, holds: &[(&ProcessRef, Holds)]) -> io::Result<Vec<Finding>> {
    let candidates: Vec<_> = holds
        .iter()
        .filter(|(process, _)| scene.state_of(process).is_some())
        .map(|(process, holds)| Candidate { process, holds })
        .collect();
    if candidates.len() < 2 {
        return Ok(Vec::new());
    }
    let connections = Connections::of(candidates.iter().map(|candidate| candidate.process))?;
    let ranks = sharing_ranks(&candidates, &connections)?;
    let findings = ranks
        .into_iter()
        .map(|(process, evidence)| finding(BlockerKind::NcclP2p, process, evidence));
    Ok(findings.collect())
}

impl Scene<'_> {
    /// What the driver says of a process; `None` if it does not use CUDA.
    #[must_use]
    pub fn state_of(&self, process: &ProcessRef) -> Option<CudaState> {
        let mut members = self.members.iter();
        members
            .find(|(member, _)| {
                member.pid() == process.pid() && member.start_time() == process.start_time()
            })
            .map(|(_, state)| *state)
    }
}

fn finding(kind: BlockerKind, process: &ProcessRef, evidence: String) -> Finding {
    Finding {
        kind,
        pid: process.pid(),
        name: process.name().to_owned(),
        evidence,
    }
}

fn failed(state: CudaState) -> Option<String> {
    match state {
        CudaState::Running | CudaState::Locked | CudaState::Checkpointed => None,
        CudaState::Failed | CudaState::Unknown(_) => Some(format!("the driver says {state}")),
    }
}

fn mps(
    inventory: &Inventory,
    process: &ProcessRef,
    held: &Holds,
    directory: &str,
) -> Option<String> {
    for (uuid, facts) in &inventory.facts {
        if facts.mps_clients.contains(&process.pid()) {
            return Some(format!("NVML lists it as a client of MPS on {uuid}"));
        }
    }
    held_below(held, directory)
}

/// Where the process looks for an MPS server. That it does is no evidence that there is one.
fn mps_directory(process: &ProcessRef) -> io::Result<String> {
    let environment = Environment::read(process.pid())?;
    let directory = environment.get("CUDA_MPS_PIPE_DIRECTORY");
    let directory = directory
        .map(|path| path.trim_end_matches('/'))
        .filter(|path| path.len() > 1 && path.starts_with('/'));
    Ok(format!("{}/", directory.unwrap_or("/tmp/nvidia-mps")))
}

fn mig(inventory: &Inventory, process: &ProcessRef, held: &Holds) -> Option<String> {
    for gpu in inventory.uses(process.pid()) {
        let facts = inventory.facts.get(&gpu.uuid);
        if facts.is_some_and(|facts| facts.mig == Mig::Enabled) {
            return Some(format!("{} is in MIG mode", gpu.uuid));
        }
    }
    let slice = held
        .find(|path| path.starts_with("/dev/nvidia-caps/") && !CAPABILITIES_OF_ALL.contains(&path));
    slice.map(ToString::to_string)
}

fn managed_memory(held: &Holds) -> Option<String> {
    let start = held.managed_memory?;
    Some(format!("/dev/nvidia-uvm is mapped at {start:#x}"))
}

/// A process that has libcuda and no CUDA state is a forked child with what its parent had open: its
/// references are given up otherwise.
fn nvidia_device(held: &Holds) -> Option<String> {
    if held.libcuda {
        return None;
    }
    held_below(held, "/dev/nvidia")
}

fn held_below(held: &Holds, path: &str) -> Option<String> {
    let hold = held.find(|held| held.starts_with(path));
    hold.map(ToString::to_string)
}

fn io_uring(held: &Holds) -> Option<String> {
    let ring = held.find(|path| path == IO_URING);
    ring.map(ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::GpuUuid;
    use crate::gpu::{GpuFacts, GpuUse, Persistence};
    use crate::traces::{Hold, How};

    fn own() -> ProcessRef {
        let pid = i32::try_from(std::process::id()).unwrap();
        ProcessRef::open(pid).unwrap().unwrap()
    }

    /// This process on a GPU in this mode, as a client of MPS or not.
    fn inventory(mig: Mig, mps_clients: Vec<i32>) -> Inventory {
        let uuid = GpuUuid::from_bytes([7; 16]);
        let facts = GpuFacts {
            minor: 0,
            persistence: Persistence::On,
            mig,
            mps_clients,
        };
        let gpu = GpuUse {
            uuid,
            memory_bytes: None,
        };
        Inventory {
            facts: [(uuid, facts)].into(),
            processes: [(own().pid(), vec![gpu])].into(),
            ..Inventory::default()
        }
    }

    fn kinds(state: Option<CudaState>, inventory: &Inventory) -> Vec<BlockerKind> {
        let members: Members = state.map(|state| (own(), state)).into_iter().collect();
        let found = find(&Scene {
            processes: &[own()],
            members: &members,
            inventory,
        });
        found.unwrap().iter().map(|finding| finding.kind).collect()
    }

    #[test]
    fn a_process_on_a_whole_gpu_has_nothing_in_its_way() {
        let inventory = inventory(Mig::Disabled, Vec::new());
        for state in [
            None,
            Some(CudaState::Running),
            Some(CudaState::Locked),
            Some(CudaState::Checkpointed),
        ] {
            assert_eq!(kinds(state, &inventory), []);
        }
    }

    #[test]
    fn what_nvml_and_the_driver_tell_counts_for_cuda_processes() {
        let shared = inventory(Mig::Enabled, vec![own().pid()]);
        let running = kinds(Some(CudaState::Running), &shared);
        assert_eq!(running, [BlockerKind::Mps, BlockerKind::Mig]);
        assert_eq!(kinds(None, &shared), []);
        let whole = inventory(Mig::NotSupported, Vec::new());
        for lost in [CudaState::Failed, CudaState::Unknown(4)] {
            assert_eq!(kinds(Some(lost), &whole), [BlockerKind::FailedState]);
        }
    }

    fn holds(paths: &[&str], libcuda: bool) -> Holds {
        let files = paths.iter().map(|path| Hold {
            path: (*path).to_owned(),
            how: How::Mapping,
        });
        Holds {
            files: files.collect(),
            libcuda,
            ..Holds::default()
        }
    }

    #[test]
    fn a_capability_of_a_slice_is_evidence_and_those_of_nvml_are_none() {
        let inventory = inventory(Mig::Disabled, Vec::new());
        let mig = |paths: &[&str]| mig(&inventory, &own(), &holds(paths, true));
        assert_eq!(mig(&CAPABILITIES_OF_ALL), None);
        let slice = mig(&[CAPABILITIES_OF_ALL[0], "/dev/nvidia-caps/nvidia-cap12"]);
        assert!(slice.is_some_and(|evidence| evidence.contains("nvidia-cap12")));
    }

    #[test]
    fn a_forked_child_with_its_parents_devices_is_no_monitor() {
        let devices = ["/dev/nvidiactl"];
        assert!(nvidia_device(&holds(&devices, false)).is_some());
        assert_eq!(nvidia_device(&holds(&devices, true)), None);
        assert_eq!(nvidia_device(&holds(&[], false)), None);
    }

    #[test]
    fn mps_leaves_its_files_where_the_variable_says() {
        let inventory = inventory(Mig::Disabled, Vec::new());
        let mps = |paths: &[&str]| mps(&inventory, &own(), &holds(paths, true), "/run/mps/");
        assert!(mps(&["/run/mps/control"]).is_some());
        assert_eq!(mps(&["/run/mps-other/control"]), None);
        assert_eq!(mps_directory(&own()).unwrap(), "/tmp/nvidia-mps/");
    }
}
