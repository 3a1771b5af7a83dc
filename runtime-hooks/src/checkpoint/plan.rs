//! The checks before a checkpoint changes anything.

use stasis_linux::cgroup::FreezerState;
use stasis_linux::{ProcessRef, Snapshot};

use crate::bulk_memory::plugin::{GpuState, Plugins};
use crate::checkpoint::captured::{Captured, Found};
use crate::checkpoint::late_exec;
use crate::checkpoint::without_gpu_state::PlainDump;
use crate::container::host_memory;
use crate::container::{Container, ContainerError};
use crate::context::Context;
use crate::cuda::Driver;
use crate::cuda::failure::ProcessFailure;
use crate::cuda::nvml::Inventory;
use crate::cuda::process_set::as_found::SafeState;
use crate::cuda::process_set::{ProcessStates, query_states};
use crate::cuda::watchdog::WatchedDriver;
use crate::error::Refusal;
use crate::image::directory::{self, NewImage};
use crate::operation::Operation;
use crate::preflight::blocker::{Blockers, Finding};
use crate::preflight::cuda_processes::{CudaMembers, cuda_members, refuse_frozen_above};
use crate::preflight::exec_sessions;
use crate::preflight::peer_access::PeerAccess;
use crate::preflight::{self, ContainerFacts};
use crate::request::{AfterDump, CheckpointRequest, PreDump};

/// A checkpoint that passed all checks.
#[derive(Debug)]
pub struct Plan<'a> {
    /// The context.
    pub context: &'a Context,
    /// The caller's request.
    pub options: &'a CheckpointRequest,
    /// The container.
    pub container: Container,
    /// The container's lock.
    pub operation: Operation,
    /// The driver of its CUDA processes.
    pub driver: WatchedDriver,
    /// Whether the caller had frozen the container, also if an interrupted operation thawed it.
    pub found: FreezerState,
    /// CRIU's plugin directory.
    pub plugins: Plugins,
    /// Blockers that the administrator allows.
    pub allowed: Vec<Finding>,
    /// The image to write.
    pub image: NewImage,
}

/// The result of the checks.
#[derive(Debug)]
pub enum Verdict<'a> {
    /// The container has no GPU, or the low-level runtime has no such running container.
    Plain,
    /// No process uses CUDA. But one may start it, since the container has a GPU, or our plugin
    /// moves the container's bulk memory.
    PlainDump(PlainDump<'a>),
    /// The plan, and the CUDA processes before the checkpoint.
    Cuda(Box<Plan<'a>>, Captured),
}

impl<'a> Plan<'a> {
    /// Checks the container, its processes, the GPUs and the image directory. Thaws a frozen
    /// container with a process that may use CUDA, since the driver answers only for running
    /// processes; the container stays thawed if the result is a plan.
    ///
    /// # Errors
    /// [`Refusal`]; the container is then in its former state.
    pub fn make(
        context: &'a Context,
        options: &'a CheckpointRequest,
    ) -> Result<Verdict<'a>, Refusal> {
        let Some(container) = context.container(&options.id)? else {
            return Ok(Verdict::Plain);
        };
        // Before anything of ours is needed, or written: its image is the low-level runtime's
        // alone. But one that takes the place of an image of ours must not keep its GPU state.
        if !directory::is_ours(&options.image_path) && is_plain(context, &container)? {
            return Ok(Verdict::Plain);
        }
        let state_dir = &context.settings.paths.state_dir;
        let operation = Operation::begin(state_dir, &context.root, &options.id)?;
        let cgroup = container.cgroup().clone();
        let now = cgroup.freezer_state()?;
        let thawed = now == FreezerState::Frozen && may_use_cuda(&container)?;
        if thawed && let Err(error) = cgroup.thaw() {
            // The container's own freezer state was changed, even if a cgroup above is frozen.
            let _ = cgroup.freeze();
            return Err(error.into());
        }
        let verdict = Self::judge(context, options, container, operation, now);
        if thawed && !matches!(verdict, Ok(Verdict::Cuda(..))) {
            cgroup.freeze()?;
        }
        verdict
    }

    fn judge(
        context: &'a Context,
        options: &'a CheckpointRequest,
        container: Container,
        operation: Operation,
        now: FreezerState,
    ) -> Result<Verdict<'a>, Refusal> {
        let snapshot = container.snapshot().map_err(ContainerError::Processes)?;
        late_exec::refuse(context, options, &snapshot)?;
        let cuda = cuda_members(context, &container, &snapshot)?;
        let Some(CudaMembers { driver, members }) = cuda else {
            return Ok(Verdict::PlainDump(PlainDump {
                context,
                options,
                container,
                operation,
                found: now,
            }));
        };
        refuse_pre_dump(options, &members)?;
        let earlier = operation.recorded()?;
        let earlier = earlier.map(|intent| intent.still_holding(&members));
        let interrupted = earlier.as_ref().filter(|intent| intent.is_under_way());
        // Not what a runtime or CRIU that was killed has made of it.
        let found = interrupted.map_or(now, |intent| intent.freezer);
        let inventory = Inventory::read(&context.settings)?;
        let allowed = refuse_blockers(context, &container, &snapshot, &members, &inventory)?;
        let states = members.iter();
        let states: Vec<_> = states
            .map(|(process, state)| (process, SafeState::from(*state)))
            .collect();
        let as_found = Found {
            members: &states,
            freezer: found,
            earlier: earlier.as_ref(),
        };
        let captured = Captured::describe(context, &container, &snapshot, &inventory, as_found)?;
        let cgroup = container.memory_of(members.iter().map(|(process, _)| process))?;
        let bytes = captured.to_host_bytes;
        host_memory::admit(&context.settings.memory, &cgroup, bytes)?;
        let plugins = Plugins::for_checkpoint(context, options, GpuState::InMemory)?;
        let image = NewImage::begin(&options.image_path)?;
        let plan = Self {
            context,
            options,
            container,
            operation,
            driver,
            found,
            plugins,
            allowed,
            image,
        };
        Ok(Verdict::Cuda(Box::new(plan), captured))
    }

    /// Describes the locked processes again: some may have started CUDA or taken memory meanwhile,
    /// others may have ended. From now on nothing changes on their GPUs.
    ///
    /// # Errors
    /// As [`Plan::make`].
    pub fn follow(&self, members: &[ProcessRef], captured: &mut Captured) -> Result<(), Refusal> {
        let (context, container) = (self.context, &self.container);
        let snapshot = container.snapshot().map_err(ContainerError::Processes)?;
        let inventory = Inventory::read(&context.settings)?;
        if !captured.is_of(container, members, &snapshot) {
            let found = query(&self.driver, container, &snapshot)?;
            refuse_blockers(context, container, &snapshot, &found, &inventory)?;
        }
        // Who is not known yet has begun to use CUDA since, and was locked by us.
        let members: Vec<_> = members
            .iter()
            .map(|process| (process, SafeState::Running))
            .collect();
        let as_found = Found {
            members: &members,
            freezer: self.found,
            earlier: Some(&captured.intent),
        };
        *captured = Captured::describe(context, container, &snapshot, &inventory, as_found)?;
        Ok(())
    }

    /// Whether the processes go on when the caller, who has paused the container, resumes it.
    #[must_use]
    pub fn is_pending_on_resume(&self) -> bool {
        let goes_on = self.options.after == AfterDump::LeaveRunning;
        goes_on && self.found == FreezerState::Frozen
    }
}

/// Queries the container's CUDA processes.
///
/// # Errors
/// A process cannot be queried.
pub fn query_again(
    driver: &dyn Driver,
    container: &Container,
) -> Result<ProcessStates, ProcessFailure> {
    let snapshot = container.snapshot();
    let snapshot = snapshot.map_err(|error| ProcessFailure::of_query(container.init(), error))?;
    query(driver, container, &snapshot)
}

fn query(
    driver: &dyn Driver,
    container: &Container,
    snapshot: &Snapshot,
) -> Result<ProcessStates, ProcessFailure> {
    refuse_frozen_above(container, snapshot.candidates())?;
    query_states(driver, snapshot.candidates().to_vec())
}

/// Whether no process can start CUDA, and our plugin does not move the bulk memory.
fn is_plain(context: &Context, container: &Container) -> Result<bool, Refusal> {
    if context.settings.bulk_memory.moves_heaps() || container.has_nvidia_node() {
        return Ok(false);
    }
    Ok(!may_use_cuda(container)?)
}

fn may_use_cuda(container: &Container) -> Result<bool, Refusal> {
    let snapshot = container.snapshot().map_err(ContainerError::Processes)?;
    Ok(!snapshot.candidates().is_empty())
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

/// Refuses all blockers except those that the administrator allows, which it returns.
fn refuse_blockers(
    context: &Context,
    container: &Container,
    snapshot: &Snapshot,
    members: &ProcessStates,
    inventory: &Inventory,
) -> Result<Vec<Finding>, Refusal> {
    let facts = ContainerFacts {
        snapshot,
        members,
        inventory,
        peer_access: PeerAccess::of(container),
    };
    let mut found = preflight::find(&facts).map_err(ContainerError::Processes)?;
    exec_sessions::retain_blockers(&mut found, snapshot);
    Ok(Blockers::check(found, &context.settings.preflight)?)
}
