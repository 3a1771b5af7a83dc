//! The checks of a container and of the image directory, which change nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use stasis_config::BlockerKind;
use stasis_gpu::cuda::nvml::Inventory;
use stasis_gpu::cuda::process_set::ProcessStates;
use stasis_gpu::cuda::watchdog::WatchedDriver;
use stasis_gpu::gpu_path::CopyingDriver;
use stasis_linux::Snapshot;
use stasis_linux::cgroup::FreezerState;

use crate::bulk_memory::plugin::{GpuState, Plugins};
use crate::checkpoint::captured::{Captured, ObservedContainer, as_reported};
use crate::checkpoint::disk_space::MostWritten;
use crate::checkpoint::late_exec;
use crate::checkpoint::route::{Facts, GpuContentsRoute};
use crate::companions::Companions;
use crate::container::hooks::Hooks;
use crate::container::host_memory::{self, HostRoom, NoHostMemory};
use crate::container::memory_limit::MemoryCgroup;
use crate::container::{Container, ContainerError, criu_configuration};
use crate::context::Context;
use crate::error::Refusal;
use crate::image::directory::NewImage;
use crate::operation::Operation;
use crate::preflight::asked::Asked;
use crate::preflight::blocker::{Blockers, Finding};
use crate::preflight::cuda_processes::{CudaMembers, cuda_members};
use crate::preflight::sharing::Sharing;
use crate::preflight::{self, ContainerFacts};
use crate::preflight::{exec_sessions, joined_namespace, nested_namespace, same_memory};
use crate::request::{CheckpointRequest, CriuOption, PreDump, Resumes};

/// Blockers that are known by the names of devices.
const OF_A_GPU: [BlockerKind; 3] = [
    BlockerKind::NvidiaDevice,
    BlockerKind::Gdrdrv,
    BlockerKind::Rdma,
];

/// The result of the checks.
pub(super) enum Judged {
    /// No process uses CUDA.
    Idle,
    /// A checkpoint can begin.
    Cuda(Box<Checked>),
}

/// The parts of a plan.
pub(super) struct Checked {
    pub(super) driver: WatchedDriver,
    /// The driver beneath it.
    pub(super) copying: Arc<CopyingDriver>,
    /// Whether the caller had frozen the container.
    pub(super) found: FreezerState,
    pub(super) plugins: Plugins,
    pub(super) allowed: Vec<Finding>,
    pub(super) hooks: Hooks,
    pub(super) image: NewImage,
    pub(super) captured: Captured,
}

/// Checks the container, which must not be frozen if a process of it may use CUDA.
pub(super) fn judge(
    context: &Context,
    options: &CheckpointRequest,
    companions: &dyn Companions,
    container: &Container,
    operation: &Operation,
    found: FreezerState,
) -> Result<Judged, Refusal> {
    let snapshot = container.snapshot().map_err(ContainerError::Processes)?;
    let after = companions
        .outcome()
        .map_or(options.after, |outcome| outcome.after);
    late_exec::refuse(context, after, &snapshot)?;
    let cuda = cuda_members(context, container, &snapshot)?;
    let Some(CudaMembers {
        driver,
        copying,
        members,
    }) = cuda
    else {
        refuse_without_gpu_state(context, options, container, &snapshot)?;
        return Ok(Judged::Idle);
    };
    refuse_pre_dump(options, &members)?;
    let hooks = Hooks::of(&context.settings.hooks, container)?;
    let earlier = (operation.recorded()?).map(|intent| intent.still_holding(&members));
    let inventory = Inventory::read(&context.settings)?;
    let looked = Looked::with_cuda(container, &snapshot, &members, &inventory, &copying);
    let allowed = match hooks.before_checkpoint {
        // The program may remove them at the hook, so they are looked for after it.
        Some(_) => Vec::new(),
        None => refuse_blockers(context, options, &looked)?,
    };
    let observed = ObservedContainer {
        members: &as_reported(&members),
        freezer: found,
        earlier: earlier.as_ref(),
    };
    let captured = Captured::describe(context, container, &snapshot, &inventory, observed)?;
    Blockers::check(captured.unknown(), &context.settings)?;
    let plugins = Plugins::for_checkpoint(context, options, GpuState::InMemory)?;
    let limits = &container.memory_of(members.iter().map(|(process, _)| process))?;
    let route = GpuContentsRoute::decide(&Facts {
        settings: &context.settings,
        plugin: plugins.ours.as_ref().copied(),
        limits,
        captured: &captured,
        // The room that they need does not depend on when they resume.
        resumes: Resumes::Later,
        no_file: &|_| None,
    });
    let room = HostRoom(operation.reservation(), context.wait_limit());
    let most = written(context, container, &captured, &route)?;
    let image_in_memory = most.in_memory(&context.settings, &options.image_path);
    admit_to_host(limits, &captured, &route, image_in_memory, room)?;
    most.admit(&context.settings, &options.image_path)?;
    let image = NewImage::begin(&context.settings, &options.image_path, companions.outcome())?;
    Ok(Judged::Cuda(Box::new(Checked {
        driver: driver.with_room(Arc::new(operation.gpu_memory(context))),
        copying,
        found,
        plugins,
        allowed,
        hooks,
        image,
        captured,
    })))
}

fn refuse_pre_dump(options: &CheckpointRequest, members: &ProcessStates) -> Result<(), Refusal> {
    match (options.pre_dump, members.first()) {
        (PreDump::Only, Some((process, _))) => Err(Refusal::PreDump {
            pid: process.pid(),
            name: process.name().to_owned(),
        }),
        _ => Ok(()),
    }
}

fn written(
    context: &Context,
    container: &Container,
    captured: &Captured,
    route: &GpuContentsRoute,
) -> Result<MostWritten, ContainerError> {
    let by_criu = route.bytes_in_container(captured);
    let settings = &context.settings.gpu_contents;
    MostWritten::of(settings, container, captured.to_host_bytes, by_criu)
}

/// Refuses if the host has no room for GPU contents and an image that takes `image_in_memory` bytes
/// beside them, or, where contents all become memory of the container, its limits have none.
pub fn admit_to_host(
    limits: &MemoryCgroup,
    captured: &Captured,
    route: &GpuContentsRoute,
    image_in_memory: u64,
    room: HostRoom<'_>,
) -> Result<(), NoHostMemory> {
    let bytes = captured.to_host_bytes;
    let beside = image_in_memory.saturating_add(route.bytes_beside_files(captured));
    host_memory::admit_host_beside(room, bytes, beside)?;
    match route {
        GpuContentsRoute::ByCriu(_) => host_memory::admit_limits(limits, bytes),
        _ => Ok(()),
    }
}

/// Finds all blockers of a container; `members` are its CUDA processes.
pub fn find_blockers(
    container: &Container,
    facts: &ContainerFacts<'_>,
) -> Result<Vec<Finding>, ContainerError> {
    let mut found = preflight::find(facts)?;
    exec_sessions::retain_blockers(&mut found, facts.snapshot);
    if facts.members.is_empty() && !container.has_nvidia_node() {
        // Without a GPU a file may have a device's name, and CRIU dumps it.
        found.retain(|finding| !OF_A_GPU.contains(&finding.kind));
    }
    found.extend(same_memory::findings(facts.snapshot)?);
    found.extend(joined_namespace::findings(container)?);
    let nested = nested_namespace::findings(container.init().pid(), facts.snapshot);
    found.extend(nested?);
    Ok(found)
}

/// Refuses a container without GPU state that CRIU could not dump. A pre-dump of memory does not
/// depend on these blockers.
pub(super) fn refuse_without_gpu_state(
    context: &Context,
    options: &CheckpointRequest,
    container: &Container,
    snapshot: &Snapshot,
) -> Result<(), Refusal> {
    if options.pre_dump == PreDump::Only {
        return Ok(());
    }
    let (none, unasked) = (ProcessStates::new(), Inventory::default());
    let looked = Looked {
        container,
        snapshot,
        members: &none,
        inventory: &unasked,
        copying: None,
    };
    refuse_blockers(context, options, &looked).map(drop)
}

/// Returns the options of CRIU at a checkpoint with these options.
pub fn asked(context: &Context, container: &Container, options: &BTreeSet<CriuOption>) -> Asked {
    let annotated = criu_configuration::file_of(container.spec());
    Asked::of(context.low_level.flavor, options, annotated.as_deref())
}

/// A container as it is now.
pub(crate) struct Looked<'a> {
    pub(crate) container: &'a Container,
    pub(crate) snapshot: &'a Snapshot,
    /// Its CUDA processes.
    pub(crate) members: &'a ProcessStates,
    pub(crate) inventory: &'a Inventory,
    /// Their driver, if there are any.
    pub(crate) copying: Option<&'a CopyingDriver>,
}

impl<'a> Looked<'a> {
    pub(crate) fn with_cuda(
        container: &'a Container,
        snapshot: &'a Snapshot,
        members: &'a ProcessStates,
        inventory: &'a Inventory,
        copying: &'a CopyingDriver,
    ) -> Self {
        Self {
            container,
            snapshot,
            members,
            inventory,
            copying: Some(copying),
        }
    }
}

/// Refuses all blockers except those that the administrator allows, which it returns.
pub(crate) fn refuse_blockers(
    context: &Context,
    options: &CheckpointRequest,
    looked: &Looked<'_>,
) -> Result<Vec<Finding>, Refusal> {
    let Looked {
        container,
        snapshot,
        members,
        inventory,
        copying,
    } = *looked;
    let asked = asked(context, container, &options.criu);
    let sharing = copying.map_or(Sharing::AtTheLock, |copying| {
        Sharing::of(copying, container, members)
    });
    let facts = ContainerFacts {
        snapshot,
        members,
        inventory,
        sharing,
        asked: Some(&asked),
    };
    let mut found = find_blockers(container, &facts)?;
    if let Some(copying) = copying {
        sharing.once_tried(copying, container, members, &mut found);
    }
    Ok(Blockers::check(found, &context.settings)?)
}
