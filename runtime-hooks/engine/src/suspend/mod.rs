//! Moves the GPU state of a container to host memory and back, in place: its processes stay.
//!
//! All CUDA processes are locked at the same time, checkpointed and restored in parallel, and all
//! rolled back if one fails. State in host memory is recorded, and waits for the operator.

mod error;
mod give_back;
mod held;
mod hooks;
mod memory;
pub mod resume;
mod take;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use self::error::Error;
pub use self::held::{query_members, refuse_held};
use crate::container::Container;
use crate::context::Context;
use crate::low_level::hook::pending::RanHook;
use crate::operation::undo::{Begun, Undo};
use crate::operation::{Intent, Operation, PendingOn};
use crate::preflight::blocker::{Blockers, OF_THE_DRIVER};
use crate::preflight::cuda_processes::refuse_below_frozen;
use crate::preflight::sharing::Sharing;
use crate::preflight::{self, ContainerFacts};
use crate::recovery;
use stasis_gpu::cuda::job::{CudaJob, Locked};
use stasis_gpu::cuda::nvml::Inventory;
use stasis_gpu::cuda::process_set::ProcessStates;
use stasis_gpu::cuda::process_set::initial_state::{InitialState, SafeState};
use stasis_gpu::cuda::watchdog::{CallLimits, MARGIN, WatchedDriver};
use stasis_gpu::cuda::{CudaDriver, CudaState, Driver, GpuMap};
use stasis_gpu::gpu_path::CopyingDriver;
use stasis_linux::ProcessRef;

/// A step of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Waits for submitted work, and holds further calls.
    Lock,
    /// To host memory.
    Checkpoint,
    /// To the GPUs.
    Restore,
    /// Lets it go on.
    Unlock,
}

/// The request to a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// One step.
    Step(Action),
    /// Suspends running processes, and gives suspended ones their GPUs back.
    Toggle,
    /// As a toggle, but suspended processes stay suspended.
    Suspend,
    /// As a toggle, but running processes keep running.
    TakeUp,
}

/// An order to a container.
#[derive(Debug)]
pub struct Order {
    /// The request.
    pub asked: Asked,
    /// The time limit for locking, if it is not the settings'.
    pub lock_timeout: Option<Duration>,
    /// The GPUs that GPU contents go to.
    pub map: GpuMap,
}

/// Whether an operation has changed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It has.
    Made,
    /// Everything was as requested.
    None,
}

/// The notes and hooks of an operation, also of a failed one.
#[derive(Debug, Default)]
pub struct Done {
    /// Notes on steps that were done in another way, and the output of hooks.
    pub notes: Vec<String>,
    /// The hooks that were run.
    pub hooks: Vec<RanHook>,
}

/// The time limits of driver calls on which no GPU contents depend.
pub fn limits(context: &Context) -> CallLimits {
    let deadlines = &context.settings.deadlines;
    CallLimits {
        answer: deadlines.lock() + MARGIN,
        work: deadlines.driver(),
    }
}

/// Carries an order out. Notes steps that were done in another way, also if it fails.
///
/// # Errors
/// [`Error`]; it reports the container's state.
pub fn carry_out(
    context: Context,
    container: Container,
    order: Order,
    done: &mut Done,
) -> Result<Change, Error> {
    let cuda = Arc::new(CudaDriver::open(
        context.settings.driver.libcuda.as_deref(),
    )?);
    let operation = recovery::begin(&context, container.id())?;
    refuse_below_frozen(&container).map_err(Error::refused)?;
    operation.keep(Undo::new(&context, container.id(), Begun::Suspend))?;
    let copying = CopyingDriver::new(cuda, &context.settings, operation.directory());
    let copying = Arc::new(copying);
    let gpus = Arc::new(operation.gpu_memory(&context));
    let suspension = Suspension {
        driver: WatchedDriver::new(copying.clone(), limits(&context)).with_room(gpus),
        context,
        container,
        order,
        operation,
        copying,
        hooks: Mutex::default(),
    };
    let changed = suspension.change();
    done.notes.extend(suspension.driver.copying().notes);
    let hooks = suspension.hooks.into_inner();
    done.hooks = hooks.unwrap_or_else(PoisonError::into_inner);
    let said = done.hooks.iter().filter_map(|ran| ran.note.clone());
    done.notes.extend(said);
    changed
}

/// A container whose GPU state is moved.
struct Suspension {
    context: Context,
    container: Container,
    order: Order,
    /// The container's lock.
    operation: Operation,
    /// The driver beneath [`Self::driver`].
    copying: Arc<CopyingDriver>,
    driver: WatchedDriver,
    /// The hooks that were run.
    hooks: Mutex<Vec<RanHook>>,
}

impl Suspension {
    fn change(&self) -> Result<Change, Error> {
        let members = query_members(&self.container, &self.driver)?;
        let all = |wanted| members.iter().all(|(_, state)| *state == wanted);
        let mixed = |wanted| Err(self.mixed(&members, wanted));
        match self.order.asked {
            Asked::Step(Action::Lock) if all(CudaState::Running) => {
                let inventory = self.inventory()?;
                self.refuse_blockers(&members, &inventory)?;
                let intent = self.intent(&members, &inventory)?;
                self.operation.record(&intent)?;
                self.lock(intent.initial_state())
                    .map(|_| self.forget())
                    .inspect_err(|error| self.leave(&intent, error.lost()))
            }
            Asked::Toggle | Asked::Suspend if all(CudaState::Running) => {
                self.suspend_running(&members)
            }
            Asked::Step(Action::Checkpoint) if all(CudaState::Locked) => self.suspend(&members),
            Asked::Step(Action::Restore) if self.is_suspended(&members)? => {
                self.take_up(members, SafeState::Locked)
            }
            Asked::Toggle | Asked::TakeUp if self.is_suspended(&members)? => {
                self.take_up(members, SafeState::Running)
            }
            Asked::Suspend if all(CudaState::Checkpointed) => return self.stay_suspended(),
            Asked::TakeUp if all(CudaState::Running) => return Ok(Change::None),
            Asked::Step(Action::Unlock) if all(CudaState::Locked) => {
                // No memory moves, so no figure is needed: NVML may hang by now.
                let intent = self.intent(&members, &Inventory::default())?;
                let intent = intent.taken_up(SafeState::Running);
                self.operation.record(&intent)?;
                let job = self.lock(intent.initial_state());
                job.and_then(|job| Ok(job.unlock()?))
                    .map(|_| self.clear())
                    .inspect_err(|error| self.leave(&intent, error.lost()))
            }
            Asked::Step(Action::Lock) => mixed("running"),
            Asked::Step(Action::Checkpoint | Action::Unlock) => mixed("locked"),
            Asked::Step(Action::Restore) => mixed("checkpointed"),
            _ => mixed("running, or all checkpointed"),
        }
        .map(|()| Change::Made)
    }

    /// Takes processes that an earlier operation was to bring back from its keeper.
    fn stay_suspended(&self) -> Result<Change, Error> {
        let recorded = self.recorded()?;
        let Some(intent) = recorded.filter(Intent::keeps_a_keeper) else {
            return Ok(Change::None);
        };
        self.operation.settle(intent.left_to(PendingOn::Operator))?;
        Ok(Change::Made)
    }

    /// Whether all are suspended, or those that a failed resume has not brought back: the record
    /// still has these. One that lacks GPU memory which it shares is suspended, too: it waits
    /// LOCKED for the others.
    fn is_suspended(&self, members: &ProcessStates) -> Result<bool, Error> {
        let waits = |(process, state): &(ProcessRef, CudaState)| match state {
            CudaState::Checkpointed => true,
            CudaState::Locked => self.driver.shares_memory(process),
            _ => false,
        };
        if members.iter().all(waits) {
            return Ok(true);
        }
        let Some(recorded) = self.recorded()? else {
            return Ok(false);
        };
        let may_be_of_it = |(process, state): &(ProcessRef, CudaState)| match state {
            CudaState::Running => true,
            CudaState::Checkpointed | CudaState::Locked => recorded.member(process).is_some(),
            _ => false,
        };
        let is_left = |(_, state): &(ProcessRef, CudaState)| *state != CudaState::Running;
        Ok(members.iter().all(may_be_of_it) && members.iter().any(is_left))
    }

    fn inventory(&self) -> Result<Inventory, Error> {
        Inventory::read(&self.context.settings).map_err(Error::refused)
    }

    /// Locks all processes that are not locked yet.
    fn lock(&self, initial_state: InitialState) -> Result<CudaJob<'_, Locked>, Error> {
        let deadline = self.order.lock_timeout;
        let deadline = deadline.unwrap_or_else(|| self.context.settings.deadlines.lock());
        let again = || held::members(&self.container, &self.driver);
        let job = CudaJob::lock(&self.driver, deadline, initial_state, again)?;
        if self.context.cancel.requested() {
            let lost = job.roll_back();
            return Err(Error::Cancelled { lost });
        }
        Ok(job)
    }

    fn refuse_blockers(&self, members: &ProcessStates, inventory: &Inventory) -> Result<(), Error> {
        let (copying, container) = (&self.copying, &self.container);
        let sharing = Sharing::of(copying, container, members);
        let mut found = preflight::find(&ContainerFacts {
            snapshot: &container.snapshot()?,
            members,
            inventory,
            sharing,
            asked: None,
        })?;
        found.retain(|finding| OF_THE_DRIVER.contains(&finding.kind));
        sharing.once_tried(copying, container, members, &mut found);
        Blockers::check(found, &self.context.settings)?;
        Ok(())
    }

    fn mixed(&self, members: &ProcessStates, wanted: &'static str) -> Error {
        let states: Vec<String> = members
            .iter()
            .map(|(process, state)| format!("{process} is {}", word(*state)))
            .collect();
        Error::Mixed {
            of: held::name(&self.container),
            wanted,
            states: states.join(", "),
        }
    }
}

/// A state as NVIDIA's program prints it.
pub fn word(state: CudaState) -> String {
    match state {
        CudaState::Unknown(raw) => format!("unknown ({raw})"),
        known => known.to_string().to_lowercase(),
    }
}
