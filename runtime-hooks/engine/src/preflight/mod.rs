//! Finds the blockers of a container's checkpoint (`preflight/blocker.rs` has their texts).
//!
//! Reads the driver's states, NVML's facts and `/proc`, and changes nothing.

pub mod asked;
pub mod blocker;
mod by_criu;
pub mod capabilities;
pub mod cuda_processes;
pub mod exec_sessions;
pub(crate) mod joined_namespace;
mod lasting;
pub(crate) mod nested_namespace;
pub(crate) mod open_files;
pub(crate) mod same_memory;
pub mod sharing;
pub(crate) mod tcp;
mod unix;

use std::io;

use stasis_config::BlockerKind;
use stasis_gpu::cuda::device_node::minor_of;
use stasis_gpu::cuda::nvml::{Inventory, Mig, Persistence};
use stasis_gpu::cuda::process_set::ProcessStates;
use stasis_gpu::cuda::{CudaState, GpuUuid};
use stasis_host::deadline::{PROC, within};
use stasis_linux::snapshot::{Member, Origin};
use stasis_linux::{ProcessRef, Snapshot};

use crate::preflight::asked::Asked;
use crate::preflight::blocker::Finding;
use crate::preflight::by_criu::{ByCriu, devices};
use crate::preflight::open_files::{Environment, OpenFiles};
use crate::preflight::sharing::Sharing;
use crate::preflight::sharing::nccl::Candidate;
use crate::preflight::sharing::peer_access::PeerAccess;
use crate::preflight::tcp::Connections;

/// The capabilities that every user of NVML may open: MIG's configuration and its monitor. The
/// capabilities of slices have higher numbers.
const CAPABILITIES_OF_ALL: [&str; 2] = [
    "/dev/nvidia-caps/nvidia-cap1",
    "/dev/nvidia-caps/nvidia-cap2",
];

/// The facts about a container that the pre-flight checks use.
#[derive(Debug, Clone, Copy)]
pub struct ContainerFacts<'a> {
    /// All its processes.
    pub snapshot: &'a Snapshot,
    /// The CUDA processes among them, each with its state.
    pub members: &'a ProcessStates,
    /// The machine's GPUs.
    pub inventory: &'a Inventory,
    /// How the GPU memory that its processes share is found.
    pub sharing: Sharing,
    /// The options of CRIU; `None` if no dump follows.
    pub asked: Option<&'a Asked>,
}

/// Finds all blockers of all processes.
///
/// # Errors
/// An error of reading `/proc`; [`io::ErrorKind::TimedOut`] if that, or a file of the container's,
/// does not answer: its CUDA processes may be locked meanwhile.
pub fn find(facts: &ContainerFacts<'_>) -> io::Result<Vec<Finding>> {
    let snapshot = facts.snapshot.clone();
    let (members, inventory) = (facts.members.clone(), facts.inventory.clone());
    let (sharing, asked) = (facts.sharing, facts.asked.cloned());
    within(PROC, move || {
        find_now(&ContainerFacts {
            snapshot: &snapshot,
            members: &members,
            inventory: &inventory,
            sharing,
            asked: asked.as_ref(),
        })
    })?
}

fn find_now(facts: &ContainerFacts<'_>) -> io::Result<Vec<Finding>> {
    let mut found = Vec::new();
    let mut candidates = Vec::new();
    let mut connections = Connections::default();
    let mut by_criu = facts.asked.map(ByCriu::of);
    for member in facts.snapshot.members() {
        let Some(process) = member.open()? else {
            continue;
        };
        let cuda = facts.cuda_process(member);
        let held = match cuda {
            Some((_, state)) => {
                let mps_directory = mps_directory(&process)?;
                let held = OpenFiles::read(&process, Some(mps_directory.clone()))?;
                let ours = of_cuda_process(facts, &process, *state, &held, &mps_directory);
                found.extend(ours);
                held
            }
            None => {
                let held = OpenFiles::read(&process, None)?;
                let evidence = nvidia_device(&held);
                found.extend(finding(BlockerKind::NvidiaDevice, &process, evidence));
                held
            }
        };
        found.extend(devices(&process, &held));
        if !held.sockets.is_empty() {
            connections.read_of(process.pid())?;
        }
        // Processes of `exec` are not dumped.
        if let Some(by_criu) = by_criu.as_mut().filter(|_| member.origin == Origin::Init) {
            by_criu.see(&process, &held, &connections)?;
        }
        if cuda.is_some() {
            candidates.push(Candidate { process, held });
        }
    }
    let mut ranks = sharing::nccl::findings(&candidates, &connections, facts.inventory)?;
    if facts.sharing == Sharing::AtTheLock {
        sharing::known_later(&mut ranks);
    }
    found.extend(ranks);
    found.extend(by_criu.map_or(Ok(Vec::new()), ByCriu::findings)?);
    found.extend(facts.snapshot.headless().iter().map(|headless| Finding {
        kind: BlockerKind::MainThreadEnded,
        pid: headless.pid,
        name: headless.name.clone(),
        evidence: "its first thread has ended, and others go on".to_owned(),
    }));
    Ok(found)
}

fn of_cuda_process(
    facts: &ContainerFacts<'_>,
    process: &ProcessRef,
    state: CudaState,
    held: &OpenFiles,
    mps_directory: &str,
) -> impl Iterator<Item = Finding> {
    let inventory = facts.inventory;
    let evidence = [
        (BlockerKind::FailedState, failed(state)),
        (
            BlockerKind::Mps,
            mps(inventory, process, held, mps_directory),
        ),
        (BlockerKind::Mig, mig(inventory, process, held)),
        (BlockerKind::ManagedMemory, managed_memory(held)),
        (BlockerKind::LostGpu, lost_gpu(inventory, held)),
        (BlockerKind::PeerAccess, facts.peer_access_of(process)),
        (
            BlockerKind::Persistence,
            persistence(facts, process, state, held),
        ),
    ];
    let findings = evidence.map(|(kind, evidence)| finding(kind, process, evidence));
    findings.into_iter().flatten()
}

impl ContainerFacts<'_> {
    /// The CUDA state of a process; `None` if it does not use CUDA.
    pub fn state_of(&self, member: &Member) -> Option<CudaState> {
        self.cuda_process(member).map(|(_, state)| *state)
    }

    fn cuda_process(&self, member: &Member) -> Option<&(ProcessRef, CudaState)> {
        let mut members = self.members.iter();
        members.find(|(process, _)| member.is(process))
    }

    /// Whether NVML lists a process on the GPU that is none of the container's CUDA processes.
    fn others_use(&self, gpu: GpuUuid) -> bool {
        let is_member = |pid| self.members.iter().any(|(member, _)| member.pid() == pid);
        let mut listed = self.inventory.processes.iter();
        listed.any(|(pid, uses)| !is_member(*pid) && uses.iter().any(|each| each.uuid == gpu))
    }

    fn peer_access_of(&self, process: &ProcessRef) -> Option<String> {
        match self.sharing {
            Sharing::Guessed(PeerAccess::Unknown) => {
                sharing::peer_access::evidence(&self.inventory.uses(process.pid()))
            }
            Sharing::Guessed(PeerAccess::DeclaredNone) | Sharing::AtTheLock => None,
        }
    }
}

fn finding(kind: BlockerKind, process: &ProcessRef, evidence: Option<String>) -> Option<Finding> {
    Some(Finding {
        kind,
        pid: process.pid(),
        name: process.name().to_owned(),
        evidence: evidence?,
    })
}

fn failed(state: CudaState) -> Option<String> {
    match state {
        CudaState::Running | CudaState::Locked | CudaState::Checkpointed => None,
        CudaState::Failed | CudaState::Unknown(_) => Some(format!("the driver reports {state}")),
    }
}

fn mps(
    inventory: &Inventory,
    process: &ProcessRef,
    held: &OpenFiles,
    directory: &str,
) -> Option<String> {
    for (uuid, facts) in &inventory.facts {
        if facts.mps_clients.contains(&process.pid()) {
            return Some(format!("NVML lists it as a client of MPS on {uuid}"));
        }
    }
    held_below(held, directory)
}

/// Returns the directory where the process would find an MPS server. It need not exist.
fn mps_directory(process: &ProcessRef) -> io::Result<String> {
    let environment = Environment::read(process)?;
    let directory = environment.get("CUDA_MPS_PIPE_DIRECTORY");
    let directory = directory
        .map(|path| path.trim_end_matches('/'))
        .filter(|path| path.len() > 1 && path.starts_with('/'));
    Ok(format!("{}/", directory.unwrap_or("/tmp/nvidia-mps")))
}

fn mig(inventory: &Inventory, process: &ProcessRef, held: &OpenFiles) -> Option<String> {
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

fn managed_memory(held: &OpenFiles) -> Option<String> {
    let start = held.managed_memory?;
    Some(format!("/dev/nvidia-uvm is mapped at {start:#x}"))
}

/// The driver opens every GPU that a process can see.
fn lost_gpu(inventory: &Inventory, held: &OpenFiles) -> Option<String> {
    let gpu_of = |path: &str| inventory.unread_at(minor_of(path)?);
    let open = held.find(|path| gpu_of(path).is_some())?;
    let gpu = gpu_of(&open.path)?;
    Some(format!("{open}, and NVML says of that GPU: {}", gpu.error))
}

/// A process whose GPU state is in host memory keeps no GPU initialised.
fn persistence(
    facts: &ContainerFacts<'_>,
    process: &ProcessRef,
    state: CudaState,
    held: &OpenFiles,
) -> Option<String> {
    if state == CudaState::Checkpointed {
        return None;
    }
    let uses = facts.inventory.uses(process.pid());
    for (uuid, gpu) in &facts.inventory.facts {
        let is_listed = uses.iter().any(|listed| listed.uuid == *uuid);
        let is_open = || {
            held.find(|path| minor_of(path) == Some(gpu.minor))
                .is_some()
        };
        let is_off = gpu.persistence == Persistence::Off;
        // If NVML knows this process by another pid, so it may the other members.
        if is_off && (is_listed && !facts.others_use(*uuid) || !is_listed && is_open()) {
            return Some(format!(
                "{uuid} is not in persistence mode, and nobody else is known to use it"
            ));
        }
    }
    None
}

/// A process with libcuda and without CUDA state is a forked child that has inherited its parent's
/// devices, which `container/inherited_devices` replaces.
fn nvidia_device(held: &OpenFiles) -> Option<String> {
    if held.libcuda {
        return None;
    }
    held_below(held, "/dev/nvidia")
}

fn held_below(held: &OpenFiles, path: &str) -> Option<String> {
    let hold = held.find(|held| held.starts_with(path));
    hold.map(ToString::to_string)
}

#[cfg(test)]
mod tests;
