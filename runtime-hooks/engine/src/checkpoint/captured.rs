//! The CUDA processes of a checkpoint, with the data that is read before their GPU state moves.

use std::io;

use stasis_config::BlockerKind;
use stasis_gpu::cuda::gpu_use::{CudaProcess, GpuUse, measure};
use stasis_gpu::cuda::nvml::Inventory;
use stasis_gpu::cuda::process_set::ProcessStates;
use stasis_gpu::cuda::process_set::initial_state::{ProcessId, SafeState};
use stasis_gpu::gpu_path;
use stasis_linux::cgroup::FreezerState;
use stasis_linux::numa::NumaNode;
use stasis_linux::snapshot::Origin;
use stasis_linux::{ProcessRef, Snapshot};

use crate::container::{Container, ContainerError};
use crate::context::Context;
use crate::error::Refusal;
use crate::image::manifest::Manifest;
use crate::image::pstree::PstreeError;
use crate::operation::{Intent, Member, peek};
use crate::preflight::ContainerFacts;
use crate::preflight::blocker::Finding;

/// The CUDA processes that are locked, checkpointed and restored together.
#[derive(Debug)]
pub struct Captured {
    /// The manifest, which lists the processes that CRIU dumps.
    pub manifest: Manifest,
    /// The processes that `exec` started: their GPU has to be freed too, but no image has them.
    pub exec: Vec<CudaProcess>,
    /// The state in which all of them, and the container, were found.
    pub intent: Intent,
    /// The bytes that are still on GPUs, or in files in memory, and become memory of processes.
    pub to_host_bytes: u64,
    /// The part of it that each process holds on GPUs.
    pub on_gpu: Vec<OnGpu>,
    /// The part of it that is in files in memory.
    pub(crate) in_file_bytes: u64,
}

/// The GPU memory of a process.
#[derive(Debug, Clone, Copy)]
pub struct OnGpu {
    /// The process.
    pub id: ProcessId,
    /// On all GPUs together, its contexts included.
    pub bytes: u64,
    /// The NUMA node that is near to all of these GPUs.
    pub near: Option<NumaNode>,
}

/// How a checkpoint found a container.
#[derive(Debug, Clone, Copy)]
pub struct ObservedContainer<'a> {
    /// Its CUDA processes.
    pub members: &'a [(&'a ProcessRef, SafeState)],
    /// Its freezer.
    pub freezer: FreezerState,
    /// The record of an earlier operation, or of an earlier look.
    pub earlier: Option<&'a Intent>,
}

/// CUDA processes with the states in which the driver has reported them.
pub(crate) fn as_reported(members: &ProcessStates) -> Vec<(&ProcessRef, SafeState)> {
    let members = members.iter();
    members
        .map(|(process, state)| (process, SafeState::from(*state)))
        .collect()
}

impl Captured {
    /// Collects the manifest's data of the processes. This must happen before the GPU checkpoint:
    /// NVML no longer lists a process whose GPU state is in host memory, so the earlier record
    /// describes such a process.
    pub fn describe(
        context: &Context,
        container: &Container,
        snapshot: &Snapshot,
        inventory: &Inventory,
        found: ObservedContainer<'_>,
    ) -> Result<Self, ContainerError> {
        let mut manifest = Manifest::new(
            container.id(),
            context.began_text(),
            inventory.driver_version.clone(),
        );
        let mut exec = Vec::new();
        let mut recorded = Vec::with_capacity(found.members.len());
        let (mut on_gpu, mut in_file_bytes) = (Vec::new(), 0_u64);
        let processes: Vec<_> = found.members.iter().map(|(process, _)| *process).collect();
        let measured = measure(&processes, inventory)?;
        for ((process, state), gpus) in found.members.iter().zip(measured) {
            let earlier = found.earlier.and_then(|intent| intent.member(process));
            let held: u64 = gpus.iter().map(|gpu| gpu.memory_bytes).sum();
            on_gpu.push(OnGpu {
                id: ProcessId::of(process),
                bytes: held,
                near: inventory.numa_node(gpus.iter().map(|gpu| gpu.uuid)),
            });
            in_file_bytes = in_file_bytes.saturating_add(gpu_path::bytes_in_file(process)?);
            let described = describe_one(container, process, gpus, earlier)?;
            let member = Member::new(process, *state, described.clone(), earlier);
            recorded.push(member);
            if is_dumped(snapshot, process) {
                manifest.processes.push(described);
            } else {
                exec.push(described);
            }
        }
        manifest.gpus.clone_from(&inventory.gpus);
        let intent = Intent {
            members: recorded,
            freezer: found.freezer,
        };
        Ok(Self {
            manifest,
            exec,
            intent,
            to_host_bytes: on_gpu
                .iter()
                .map(|on_gpu| on_gpu.bytes)
                .fold(in_file_bytes, u64::saturating_add),
            on_gpu,
            in_file_bytes,
        })
    }

    /// Returns the bytes that are in files of ours, or are to be: the GPU memory of processes that
    /// hold at least `minimum` bytes, and the bytes that are in files already.
    pub(crate) fn in_files_bytes(&self, minimum: u64) -> u64 {
        let to_files = self.on_gpu.iter().map(|on_gpu| on_gpu.bytes);
        let to_files: u64 = to_files.filter(|bytes| *bytes >= minimum).sum();
        to_files.saturating_add(self.in_file_bytes)
    }

    /// The processes that hold at least `minimum` bytes on GPUs, with their bytes.
    pub(crate) fn held(&self, minimum: u64) -> Vec<(ProcessRef, u64)> {
        let large = self.on_gpu.iter();
        let large = large.filter(|on_gpu| on_gpu.bytes >= minimum);
        let held = large.filter_map(|on_gpu| Some((on_gpu.id.open().ok()??, on_gpu.bytes)));
        held.collect()
    }

    /// The NUMA node that is near to all GPUs of a process.
    pub(crate) fn near(&self, process: &ProcessRef) -> Option<NumaNode> {
        let mut on_gpu = self.on_gpu.iter();
        on_gpu
            .find(|on_gpu| on_gpu.id == ProcessId::of(process))?
            .near
    }

    /// The processes whose GPU use is not known: another program has moved their state to host
    /// memory, where NVML does not see it.
    pub fn unknown(&self) -> Vec<Finding> {
        let members = self.intent.members.iter();
        let unknown = members.filter(|member| {
            member.found == SafeState::Checkpointed && member.process.gpus.is_empty()
        });
        let finding = |member: &Member| Finding {
            kind: BlockerKind::UnknownGpus,
            pid: member.id.pid,
            name: member.process.name.clone(),
            evidence: "its GPU state is in host memory, and no record says from where".to_owned(),
        };
        unknown.map(finding).collect()
    }

    /// Returns whether exactly these processes are described.
    pub fn is_of(
        &self,
        container: &Container,
        members: &[ProcessRef],
        snapshot: &Snapshot,
    ) -> bool {
        let (dumped, exec): (Vec<_>, Vec<_>) = members
            .iter()
            .partition(|member| is_dumped(snapshot, member));
        let are = |described: &[CudaProcess], now: &[&ProcessRef]| {
            let described = described.iter().map(|process| Some(process.pid));
            now.iter()
                .map(|member| container.pid_inside(member))
                .eq(described)
        };
        are(&self.manifest.processes, &dumped) && are(&self.exec, &exec)
    }

    /// Verifies that the locked processes that CRIU is about to dump are still the recorded ones.
    /// The GPU checkpoint may take many seconds, in which a process may end or change its parent.
    pub(crate) fn verify(
        &self,
        container: &Container,
        members: &[ProcessRef],
        snapshot: &Snapshot,
    ) -> Result<(), PstreeError> {
        let origin_of = |process: &CudaProcess| {
            let mut members = members.iter();
            let member =
                members.find(|member| container.pid_inside(member) == Some(process.pid))?;
            snapshot.origin_of(member)
        };
        for process in &self.manifest.processes {
            if origin_of(process) != Some(Origin::Init) {
                return Err(PstreeError::without(process));
            }
        }
        for process in &self.exec {
            if origin_of(process) == Some(Origin::Init) {
                return Err(PstreeError::adopted(process));
            }
        }
        Ok(())
    }
}

/// The CUDA processes, which are not frozen, as a checkpoint would find them.
pub fn look(
    context: &Context,
    container: &Container,
    facts: &ContainerFacts<'_>,
) -> Result<Captured, Refusal> {
    let state_dir = &context.settings.paths.state_dir;
    let earlier = peek(state_dir, &context.root, container.id())?;
    let earlier = earlier.map(|intent| intent.still_holding(facts.members));
    let found = ObservedContainer {
        members: &as_reported(facts.members),
        freezer: FreezerState::Thawed,
        earlier: earlier.as_ref(),
    };
    let (snapshot, inventory) = (facts.snapshot, facts.inventory);
    Ok(Captured::describe(
        context, container, snapshot, inventory, found,
    )?)
}

/// A process that was not seen counts as part of the image: the image is verified later.
fn is_dumped(snapshot: &Snapshot, process: &ProcessRef) -> bool {
    snapshot.origin_of(process) != Some(Origin::Exec)
}

fn describe_one(
    container: &Container,
    process: &ProcessRef,
    mut gpus: Vec<GpuUse>,
    earlier: Option<&Member>,
) -> Result<CudaProcess, ContainerError> {
    let pid = container.pid_inside(process).ok_or_else(|| {
        io::Error::other(format!(
            "{process} is outside the container's pid namespace"
        ))
    })?;
    if gpus.is_empty()
        && let Some(earlier) = earlier
    {
        gpus.clone_from(&earlier.process.gpus);
    }
    Ok(CudaProcess {
        pid,
        name: process.name().to_owned(),
        gpus,
    })
}
