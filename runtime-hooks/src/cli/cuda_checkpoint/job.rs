//! Operations on all CUDA processes of a container together: locked at the same time,
//! checkpointed and restored in parallel, and all rolled back if one fails.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use stasis_config::Settings;

use super::arguments::{Action, Arguments, Operation as Asked};
use super::{Error, NAME, stopped, word};
use crate::cli::locate::{Located, locate};
use crate::cuda::failure::{JobError, ProcessFailure, Step};
use crate::cuda::job::{Checkpointed, CudaJob, Locked};
use crate::cuda::lock::LockLimits;
use crate::cuda::nvml::Inventory;
use crate::cuda::process_set::ProcessStates;
use crate::cuda::process_set::as_found::{AsFound, SafeState};
use crate::cuda::watchdog::{CallLimits, MARGIN, WatchedDriver};
use crate::cuda::{CudaDriver, CudaState, Driver, GpuMap};
use crate::error::Refusal;
use crate::gpu_path::{CopyingDriver, hole};
use crate::host::cancel::Cancel;
use crate::low_level::hook::owed::RanHook;
use crate::operation::Operation;
use crate::operation::undo::{Begun, Undo};
use crate::preflight::blocker::{Blockers, OF_THE_DRIVER};
use crate::preflight::cuda_processes::refuse_below_frozen;
use crate::preflight::peer_access::PeerAccess;
use crate::preflight::{self, ContainerFacts};
use crate::recovery;

/// An order to a container.
pub(in crate::cli) struct Order {
    pub(in crate::cli) asked: Asked,
    /// How long locking may take, if not as long as the settings say.
    pub(in crate::cli) lock_timeout: Option<Duration>,
    /// Where GPU contents go.
    pub(in crate::cli) map: GpuMap,
}

/// Whether an operation has changed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Change {
    Made,
    /// Everything was as it was asked for.
    None,
}

/// What was done on the way, also by an operation that failed.
#[derive(Debug, Default)]
pub(in crate::cli) struct Done {
    /// What was done in another way, and what hooks have said.
    pub(in crate::cli) notes: Vec<String>,
    /// The hooks that were run.
    pub(in crate::cli) hooks: Vec<RanHook>,
}

/// Carries the operation out and returns its answer: a line for each process of a query.
pub(super) fn run(settings: Settings, arguments: &Arguments) -> Result<String, Error> {
    let id = arguments.target.container.as_deref().unwrap_or_default();
    let found = locate(id, arguments.root.as_deref())?;
    let asked = arguments.operation();
    if let Asked::State | Asked::RestoreThread = asked {
        let cuda = Arc::new(CudaDriver::open(settings.driver.libcuda.as_deref())?);
        let driver = WatchedDriver::new(cuda, limits(&settings));
        return answer_query(&found, &driver, asked);
    }
    let order = Order {
        asked,
        lock_timeout: arguments.lock_timeout(),
        map: arguments.map(),
    };
    let mut done = Done::default();
    let changed = carry_out(settings, found, order, &mut done);
    for note in done.notes {
        // Nobody has to read it.
        let _ = writeln!(io::stderr(), "{NAME}: {note}");
    }
    changed.map(|_| String::new())
}

fn limits(settings: &Settings) -> CallLimits {
    CallLimits {
        answer: settings.deadlines.lock() + MARGIN,
        work: settings.deadlines.driver(),
    }
}

/// Carries an order out. What was done in another way is noted, also if it fails.
pub(in crate::cli) fn carry_out(
    settings: Settings,
    found: Located,
    order: Order,
    done: &mut Done,
) -> Result<Change, Error> {
    let cuda = Arc::new(CudaDriver::open(settings.driver.libcuda.as_deref())?);
    let limits = limits(&settings);
    let cancel = Cancel::on_signals()?;
    let context = found.context(settings.clone(), Cancel::not_needed());
    let id = found.container.id();
    let operation = recovery::begin(&context, id)?;
    let refused = refuse_below_frozen(&found.container);
    refused.map_err(|refusal| Error::Refused(Box::new(refusal.into())))?;
    operation.keep(Undo::new(&context, id, Begun::Suspend))?;
    let copying = Arc::new(CopyingDriver::new(cuda, &settings, operation.directory()));
    let mut group = Group {
        driver: WatchedDriver::new(copying.clone(), limits),
        settings,
        order,
        found,
        operation,
        copying,
        cancel,
        hooks: Mutex::default(),
    };
    let gpus = Arc::new(group.gpu_memory());
    group.driver = WatchedDriver::new(group.copying.clone(), limits).with_room(gpus);
    let changed = group.change(group.order.asked);
    done.notes.extend(group.driver.copying().notes);
    let hooks = group.hooks.into_inner();
    done.hooks = hooks.unwrap_or_else(PoisonError::into_inner);
    let said = done.hooks.iter().filter_map(|ran| ran.note.clone());
    done.notes.extend(said);
    changed
}

fn answer_query(found: &Located, driver: &dyn Driver, asked: Asked) -> Result<String, Error> {
    let mut answer = String::new();
    for (process, state) in stopped::query_members(found, driver)? {
        let value = if asked == Asked::State {
            word(state)
        } else {
            let thread = driver.restore_thread(&process);
            let fault = |error| Error::Untouched(ProcessFailure::of(Step::Query, &process, error));
            thread.map_err(fault)?.to_string()
        };
        answer += &format!("{} {value}\n", process.pid());
    }
    Ok(answer)
}

impl From<JobError> for Error {
    fn from(JobError { fault, lost }: JobError) -> Self {
        Self::Group { fault, lost }
    }
}

pub(super) struct Group {
    pub(super) settings: Settings,
    pub(super) order: Order,
    pub(super) found: Located,
    /// The container's lock.
    pub(super) operation: Operation,
    /// The driver beneath [`Self::driver`].
    pub(super) copying: Arc<CopyingDriver>,
    pub(super) driver: WatchedDriver,
    pub(super) cancel: Cancel,
    /// The hooks that were run.
    pub(super) hooks: Mutex<Vec<RanHook>>,
}

impl Group {
    fn change(&self, asked: Asked) -> Result<Change, Error> {
        let members = stopped::query_members(&self.found, &self.driver)?;
        let all = |wanted| members.iter().all(|(_, state)| *state == wanted);
        let mixed = |wanted| Err(self.mixed(&members, wanted));
        match asked {
            Asked::Step(Action::Lock) if all(CudaState::Running) => {
                let inventory = self.inventory()?;
                self.refuse_blockers(&members, &inventory)?;
                let intent = self.intent(&members, &inventory)?;
                self.operation.record(&intent)?;
                let locked = self.lock(intent.as_found()).map(drop);
                self.forget();
                locked
            }
            Asked::Toggle | Asked::Suspend if all(CudaState::Running) => {
                self.suspend_running(&members)
            }
            Asked::Step(Action::Checkpoint) if all(CudaState::Locked) => self.suspend(&members),
            Asked::Step(Action::Restore) if all(CudaState::Checkpointed) => {
                self.take_up(members, SafeState::Locked)
            }
            Asked::Toggle | Asked::TakeUp if all(CudaState::Checkpointed) => {
                self.take_up(members, SafeState::Running)
            }
            Asked::Suspend if all(CudaState::Checkpointed) => return Ok(Change::None),
            Asked::TakeUp if all(CudaState::Running) => return Ok(Change::None),
            Asked::Step(Action::Unlock) if all(CudaState::Locked) => {
                self.lock(AsFound::default())?.unlock()?;
                self.clear();
                Ok(())
            }
            Asked::Step(Action::Lock) => mixed("running"),
            Asked::Step(Action::Checkpoint | Action::Unlock) => mixed("locked"),
            Asked::Step(Action::Restore) => mixed("checkpointed"),
            _ => mixed("running, or all checkpointed"),
        }
        .map(|()| Change::Made)
    }

    pub(super) fn inventory(&self) -> Result<Inventory, Error> {
        let read = Inventory::read(&self.settings);
        read.map_err(|error| Error::Refused(Box::new(error.into())))
    }

    /// Locks all processes that are not locked yet.
    pub(super) fn lock(&self, as_found: AsFound) -> Result<CudaJob<'_, Locked>, Error> {
        let deadlines = &self.settings.deadlines;
        let deadline = self.order.lock_timeout;
        let limits = LockLimits {
            deadline: deadline.unwrap_or_else(|| deadlines.lock()),
            one_try: deadlines.lock_try(),
        };
        let again = || stopped::members(&self.found, &self.driver);
        let job = CudaJob::lock(&self.driver, limits, as_found, again)?;
        if self.cancel.requested() {
            let lost = job.roll_back();
            return Err(Error::Cancelled { lost });
        }
        Ok(job)
    }

    /// Brings checkpointed processes to `goal`.
    fn take_up(&self, members: ProcessStates, goal: SafeState) -> Result<(), Error> {
        let suspended = match self.recorded()? {
            Some(suspended) => suspended,
            // A program without records has checkpointed them: what they need is not known.
            None => self.intent(&members, &self.inventory()?)?,
        };
        let given = hole::give_back(self.operation.directory());
        given.map_err(|error| Error::Refused(Box::new(Refusal::GpuContents(error))))?;
        self.admit(&suspended, goal)?;
        let processes: Vec<_> = members.into_iter().map(|(process, _)| process).collect();
        let held = processes
            .iter()
            .map(|process| (process.clone(), suspended.bytes_of(process)));
        self.driver.expect(&held.collect::<Vec<_>>());
        let job = CudaJob::<Checkpointed>::of_restored(&self.driver, processes)
            .map_err(Error::Untouched)?;
        // Who finds this operation killed finishes it.
        self.operation.record(&suspended.clone().taken_up(goal))?;
        let taken_up = self.restore(job, goal);
        match &taken_up {
            Ok(()) if goal == SafeState::Locked => self.forget(),
            Ok(()) => self.clear(),
            // A step that failed has brought them all back, with their GPU.
            Err(error) if error.lost().is_empty() => self.clear(),
            // What has not come back waits as before.
            Err(_) => self.settle(suspended),
        }
        taken_up
    }

    fn restore(&self, job: CudaJob<'_, Checkpointed>, goal: SafeState) -> Result<(), Error> {
        let job = job.restore(&self.order.map)?;
        if goal == SafeState::Running {
            job.unlock()?;
        }
        Ok(())
    }

    pub(super) fn refuse_blockers(
        &self,
        members: &ProcessStates,
        inventory: &Inventory,
    ) -> Result<(), Error> {
        let mut found = preflight::find(&ContainerFacts {
            snapshot: &self.found.container.snapshot()?,
            members,
            inventory,
            peer_access: PeerAccess::of(&self.found.container),
            asked: None,
        })?;
        found.retain(|finding| OF_THE_DRIVER.contains(&finding.kind));
        Blockers::check(found, &self.settings)?;
        Ok(())
    }

    fn mixed(&self, members: &ProcessStates, wanted: &'static str) -> Error {
        let states: Vec<String> = members
            .iter()
            .map(|(process, state)| format!("{process} is {}", word(*state)))
            .collect();
        Error::Mixed {
            of: stopped::name(&self.found),
            wanted,
            states: states.join(", "),
        }
    }
}
