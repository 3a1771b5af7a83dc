//! The checks before a checkpoint changes anything.

mod begin;
pub mod judge;

use std::path::Path;
use std::sync::Arc;

use stasis_gpu::cuda::Driver;
use stasis_gpu::cuda::failure::ProcessFailure;
use stasis_gpu::cuda::nvml::Inventory;
use stasis_gpu::cuda::process_set::initial_state::SafeState;
use stasis_gpu::cuda::process_set::{ProcessStates, query_states};
use stasis_gpu::cuda::watchdog::WatchedDriver;
use stasis_gpu::gpu_path::{CopyingDriver, detached};
use stasis_linux::cgroup::FreezerState;
use stasis_linux::{ProcessRef, Snapshot};

use crate::bulk_memory::plugin::Plugins;
use crate::checkpoint::captured::{Captured, ObservedContainer};
use crate::checkpoint::plan::judge::{Judged, Looked, judge, refuse_blockers};
use crate::checkpoint::without_gpu_state::PlainDump;
use crate::companions::{Companions, Step};
use crate::container::hooks::Hooks;
use crate::container::{Container, ContainerError};
use crate::context::Context;
use crate::error::after_failure::AfterFailure;
use crate::error::{Error, Failure, Refusal};
use crate::image::directory::NewImage;
use crate::operation::Operation;
use crate::operation::timeline::Timeline;
use crate::operation::undo::Begun;
use crate::operation::verb::Verb;
use crate::preflight::blocker::Finding;
use crate::preflight::cuda_processes::refuse_frozen_ancestor;
use crate::recovery::rollback::Changed;
use crate::request::{AfterDump, CheckpointRequest, Resumes};
use begin::begin;

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
    /// The driver beneath it.
    pub copying: Arc<CopyingDriver>,
    /// Whether the caller had frozen the container, also if an interrupted operation thawed it.
    pub found: FreezerState,
    /// CRIU's plugin directory.
    pub plugins: Plugins,
    /// Blockers that the administrator allows.
    pub allowed: Vec<Finding>,
    /// The hooks that notify its program.
    pub hooks: Hooks,
    /// The image to write.
    pub image: NewImage,
    /// The checkpoints that share its outcome.
    pub(crate) companions: &'a dyn Companions,
}

/// The result of the checks.
#[derive(Debug)]
pub enum Verdict<'a> {
    /// The container has no GPU, or the low-level runtime has no such running container.
    Plain,
    /// No process uses CUDA. But one may start it, since the container has a GPU.
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
    /// A refusal, or that the container could not be frozen again.
    pub fn make(
        context: &'a Context,
        options: &'a CheckpointRequest,
        companions: &'a dyn Companions,
    ) -> Result<Verdict<'a>, Error> {
        let id = &options.id;
        let refused = |reason| Error::refused(Verb::Checkpoint, id, reason);
        let Some((container, operation, found)) =
            begin(context, options, companions).map_err(refused)?
        else {
            return Ok(Verdict::Plain);
        };
        let cgroup = container.cgroup();
        let may_use_cuda = may_use_cuda(&container).map_err(refused)?;
        let thaws = found == FreezerState::Frozen && may_use_cuda;
        let thawed = if thaws {
            cgroup.thaw().map_err(Refusal::from)
        } else {
            Ok(())
        };
        // Contents that an earlier checkpoint left for the resume of the paused container.
        let has_contents = thawed.and_then(|()| {
            let given = detached::give_back(operation.directory());
            given.map_err(Refusal::GpuContents)
        });
        let judged = has_contents
            .and_then(|()| judge(context, options, companions, &container, &operation, found));
        if thaws
            && !matches!(judged, Ok(Judged::Cuda(_)))
            && let Err(error) = cgroup.freeze()
        {
            let cause = judged.map_or_else(Failure::Refused, |_| Failure::Freezer(error));
            let (verb, now) = (Verb::Checkpoint, AfterFailure::NotPaused);
            return Err(Error::ending(&operation, verb, cause, now));
        }
        match judged.map_err(refused)? {
            Judged::Idle => Ok(Verdict::PlainDump(PlainDump {
                context,
                options,
                container,
                operation,
                found,
                companions,
            })),
            Judged::Cuda(checked) => {
                let plan = Self {
                    context,
                    options,
                    container,
                    operation,
                    driver: checked.driver,
                    copying: checked.copying,
                    found: checked.found,
                    plugins: checked.plugins,
                    allowed: checked.allowed,
                    hooks: checked.hooks,
                    image: checked.image,
                    companions,
                };
                plan.has_image(Some(plan.image.directory()));
                Ok(Verdict::Cuda(Box::new(plan), checked.captured))
            }
        }
    }

    /// The changes that a failure has to undo.
    pub(crate) fn changed<'s>(&'s self, captured: &'s Captured) -> Changed<'s> {
        Changed {
            operation: &self.operation,
            container: &self.container,
            driver: &self.driver,
            intent: &captured.intent,
        }
    }

    /// Ends the operation with a failure, and the container's state after it.
    pub(crate) fn failed(&self, cause: Failure, after_failure: AfterFailure) -> Error {
        Error::ending(&self.operation, Verb::Checkpoint, cause, after_failure)
    }

    /// Records the image that has to be given up if this process is killed.
    pub(crate) fn has_image(&self, image: Option<&Path>) {
        // If this fails, the remains of a killed checkpoint stay until the next one.
        let begun = Begun::Checkpoint {
            found: self.found,
            image: image.map(Path::to_owned),
            shared: self.companions.outcome().cloned(),
        };
        let _ = self.operation.has_begun(begun);
    }

    /// Describes the locked processes again: some may have started CUDA or taken memory meanwhile,
    /// others may have ended. From now on nothing changes on their GPUs. Returns what was seen.
    pub fn follow(
        &self,
        members: &[ProcessRef],
        captured: &mut Captured,
    ) -> Result<(Snapshot, Inventory), Refusal> {
        let (context, container) = (self.context, &self.container);
        let snapshot = container.snapshot().map_err(ContainerError::Processes)?;
        let inventory = Inventory::read(&context.settings)?;
        if !captured.is_of(container, members, &snapshot) {
            let found = query(&self.driver, container, &snapshot)?;
            let looked = Looked::with_cuda(container, &snapshot, &found, &inventory, &self.copying);
            refuse_blockers(context, self.options, &looked)?;
        }
        // A process that is not recorded has begun to use CUDA since, and was locked by us.
        let members: Vec<_> = members
            .iter()
            .map(|process| (process, SafeState::Running))
            .collect();
        let observed = ObservedContainer {
            members: &members,
            freezer: self.found,
            earlier: Some(&captured.intent),
        };
        *captured = Captured::describe(context, container, &snapshot, &inventory, observed)?;
        Ok((snapshot, inventory))
    }

    /// When the processes go on, and GPU contents that are away during the dump come back.
    pub(crate) fn resumes(&self) -> Resumes {
        match self.options.after {
            AfterDump::LeaveRunning if !self.stays_frozen() => Resumes::AtOnce,
            AfterDump::LeaveRunning | AfterDump::Exit => Resumes::Later,
        }
    }

    /// Whether the container is frozen before the dump and after it: its caller has paused it, or
    /// it waits for others.
    pub(crate) fn stays_frozen(&self) -> bool {
        self.companions.outcome().is_some() || self.is_pending_on_resume()
    }

    /// Waits until all that share its outcome have reached this step.
    pub(crate) fn meet(&self, step: Step, timeline: &mut Timeline<'_>) -> Result<(), Failure> {
        self.companions.meet(step, &self.context.cancel, timeline)
    }

    /// Whether the processes go on when the caller, who has paused the container, resumes it.
    pub(crate) fn is_pending_on_resume(&self) -> bool {
        self.options.is_pending_on_resume(self.found)
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

pub(super) fn query(
    driver: &dyn Driver,
    container: &Container,
    snapshot: &Snapshot,
) -> Result<ProcessStates, ProcessFailure> {
    refuse_frozen_ancestor(container, snapshot.candidates())?;
    query_states(driver, snapshot.candidates().to_vec())
}

/// Whether no process can start CUDA: a checkpoint is the low-level runtime's alone.
///
/// # Errors
/// The container's processes cannot be read.
pub(crate) fn is_plain(container: &Container) -> Result<bool, Refusal> {
    if container.has_nvidia_node() {
        return Ok(false);
    }
    Ok(!may_use_cuda(container)?)
}

fn may_use_cuda(container: &Container) -> Result<bool, Refusal> {
    let snapshot = container.snapshot().map_err(ContainerError::Processes)?;
    Ok(!snapshot.candidates().is_empty())
}
