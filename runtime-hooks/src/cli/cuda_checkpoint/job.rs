//! Operations on all CUDA processes of a tree or a container together: locked at the same time,
//! checkpointed and restored in parallel, and all rolled back if one fails.

use std::io;
use std::sync::Arc;

use stasis_config::Settings;
use stasis_linux::procfs::processes;
use stasis_linux::tree::descendants;
use stasis_linux::{ProcessRef, Snapshot};

use super::arguments::{Action, Arguments, Operation as Asked};
use super::stopped::{held, open};
use super::{Error, word};
use crate::cli::locate::{Located, locate};
use crate::cuda::failure::{JobError, ProcessFailure, Step};
use crate::cuda::job::{Checkpointed, CudaJob, Locked};
use crate::cuda::lock::LockLimits;
use crate::cuda::nvml::Inventory;
use crate::cuda::process_set::{ProcessStates, query_states};
use crate::cuda::watchdog::{CallLimits, MARGIN, WatchedDriver};
use crate::cuda::{CudaDriver, CudaState, Driver};
use crate::host::cancel::Cancel;
use crate::host::huge_pages::HugePages;
use crate::operation::Operation;
use crate::preflight::blocker::{Blockers, OF_THE_DRIVER};
use crate::preflight::peer_access::PeerAccess;
use crate::preflight::{self, ContainerFacts};

/// Carries the operation out and returns its answer, one line for each process.
pub(super) fn run(settings: Settings, arguments: &Arguments) -> Result<String, Error> {
    let scope = Scope::of(arguments)?;
    let driver = CudaDriver::open(settings.driver.libcuda.as_deref())?;
    let limits = CallLimits {
        answer: settings.deadlines.lock() + MARGIN,
        work: settings.deadlines.driver(),
    };
    let driver = WatchedDriver::new(Arc::new(driver), limits);
    let asked = arguments.operation();
    if let Asked::State | Asked::RestoreThread = asked {
        return answer_query(&scope, &driver, asked);
    }
    let cancel = Cancel::on_signals()?;
    let operation = match &scope {
        Scope::Container(found) => Some(Operation::begin(
            &settings.paths.state_dir,
            &found.root,
            found.container.id(),
        )?),
        Scope::Tree(_) => None,
    };
    let group = Group {
        settings,
        arguments,
        scope,
        operation,
        driver,
        cancel,
    };
    group.change(asked)?;
    Ok(String::new())
}

/// The tree or container whose CUDA processes are meant.
pub(super) enum Scope {
    Tree(ProcessRef),
    Container(Located),
}

impl Scope {
    fn of(arguments: &Arguments) -> Result<Self, Error> {
        match (&arguments.target.container, arguments.target.tree) {
            (Some(id), _) => Ok(Self::Container(locate(id, arguments.root.as_deref())?)),
            (None, pid) => Ok(Self::Tree(open(pid.unwrap_or_default())?)),
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Tree(root) => format!("the tree of {root}"),
            Self::Container(found) => format!("container {}", found.container.id()),
        }
    }

    /// The pid of a process in the record.
    pub(super) fn pid_inside(&self, process: &ProcessRef) -> i32 {
        match self {
            Self::Tree(_) => process.pid(),
            Self::Container(found) => found.container.pid_inside(process).unwrap_or(process.pid()),
        }
    }

    fn peer_access(&self) -> PeerAccess {
        match self {
            Self::Tree(_) => PeerAccess::Unknown,
            Self::Container(found) => PeerAccess::of(&found.container),
        }
    }

    fn snapshot(&self) -> io::Result<Snapshot> {
        match self {
            // Orphans belong to the process that adopted them.
            Self::Tree(root) => Snapshot::take(root, &descendants(root.pid(), processes()?)?),
            Self::Container(found) => found.container.snapshot(),
        }
    }

    fn members(&self, driver: &dyn Driver) -> Result<ProcessStates, ProcessFailure> {
        let init = match self {
            Self::Tree(root) => root,
            Self::Container(found) => found.container.init(),
        };
        let snapshot = self.snapshot();
        let snapshot = snapshot.map_err(|error| ProcessFailure::of_query(init, error))?;
        query_states(driver, snapshot.into_candidates())
    }

    /// The first query of the members, before all of them are known to answer.
    fn query_members(&self, driver: &dyn Driver) -> Result<ProcessStates, Error> {
        for process in self.snapshot()?.candidates() {
            if let Some(held) = held(process, || None)? {
                return Err(Error::Held {
                    pid: process.pid(),
                    name: process.name().to_owned(),
                    held,
                });
            }
        }
        let members = self.members(driver).map_err(Error::Untouched)?;
        if members.is_empty() {
            return Err(Error::NoMembers(self.name()));
        }
        Ok(members)
    }
}

fn answer_query(scope: &Scope, driver: &dyn Driver, asked: Asked) -> Result<String, Error> {
    let mut answer = String::new();
    for (process, state) in scope.query_members(driver)? {
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

pub(super) struct Group<'a> {
    pub(super) settings: Settings,
    pub(super) arguments: &'a Arguments,
    pub(super) scope: Scope,
    /// The container's lock, if the scope is a container.
    pub(super) operation: Option<Operation>,
    driver: WatchedDriver,
    cancel: Cancel,
}

impl Group<'_> {
    fn change(&self, asked: Asked) -> Result<(), Error> {
        let members = self.scope.query_members(&self.driver)?;
        let all = |wanted| members.iter().all(|(_, state)| *state == wanted);
        let mixed = |wanted| Err(self.mixed(&members, wanted));
        match asked {
            Asked::Step(Action::Lock) if all(CudaState::Running) => {
                self.refuse_blockers(&members, &self.inventory())?;
                self.lock().map(drop)
            }
            Asked::Toggle if all(CudaState::Running) => self.suspend(&members),
            Asked::Step(Action::Checkpoint) if all(CudaState::Locked) => self.suspend(&members),
            Asked::Step(Action::Restore) if all(CudaState::Checkpointed) => {
                self.restore(members).map(drop)
            }
            Asked::Toggle if all(CudaState::Checkpointed) => self.go_on(self.restore(members)?),
            Asked::Step(Action::Unlock) if all(CudaState::Locked) => self.go_on(self.lock()?),
            Asked::Step(Action::Lock) => mixed("running"),
            Asked::Step(Action::Checkpoint | Action::Unlock) => mixed("locked"),
            Asked::Step(Action::Restore) => mixed("checkpointed"),
            Asked::Toggle | Asked::State | Asked::RestoreThread => {
                mixed("running, or all checkpointed")
            }
        }
    }

    fn suspend(&self, members: &ProcessStates) -> Result<(), Error> {
        let inventory = self.inventory();
        self.refuse_blockers(members, &inventory)?;
        let suspended = self
            .raise_limits(members, &inventory)
            .and_then(|()| self.lock())
            .and_then(|job| self.checkpoint(job));
        // A failed step has rolled all processes back, except the lost ones.
        if suspended.is_err() {
            self.clear();
        }
        suspended
    }

    fn go_on(&self, job: CudaJob<'_, Locked>) -> Result<(), Error> {
        job.unlock()?;
        self.clear();
        Ok(())
    }

    /// An error of NVML is ignored: nothing below needs it, and blockers that only NVML finds are
    /// rare.
    fn inventory(&self) -> Inventory {
        Inventory::read(&self.settings).unwrap_or_default()
    }

    /// Locks all processes that are not locked yet.
    fn lock(&self) -> Result<CudaJob<'_, Locked>, Error> {
        let deadlines = &self.settings.deadlines;
        let deadline = self.arguments.lock_timeout();
        let limits = LockLimits {
            deadline: deadline.unwrap_or_else(|| deadlines.lock()),
            one_try: deadlines.lock_try(),
        };
        let again = || self.scope.members(&self.driver);
        let job = CudaJob::lock(&self.driver, limits, again)?;
        if self.cancel.requested() {
            let lost = job.roll_back();
            return Err(Error::Cancelled { lost });
        }
        Ok(job)
    }

    fn checkpoint(&self, job: CudaJob<'_, Locked>) -> Result<(), Error> {
        let _huge_pages = HugePages::if_wanted(&self.settings);
        let job = job.checkpoint()?;
        if self.cancel.requested() {
            let lost = job.roll_back();
            return Err(Error::Cancelled { lost });
        }
        Ok(())
    }

    fn restore(&self, members: ProcessStates) -> Result<CudaJob<'_, Locked>, Error> {
        self.admit_restore()?;
        let processes = members.into_iter().map(|(process, _)| process).collect();
        let job = CudaJob::<Checkpointed>::of_restored(&self.driver, processes)
            .map_err(Error::Untouched)?;
        let _huge_pages = HugePages::if_wanted(&self.settings);
        Ok(job.restore(&self.arguments.map())?)
    }

    fn refuse_blockers(&self, members: &ProcessStates, inventory: &Inventory) -> Result<(), Error> {
        let mut found = preflight::find(&ContainerFacts {
            snapshot: &self.scope.snapshot()?,
            members,
            inventory,
            peer_access: self.scope.peer_access(),
        })?;
        found.retain(|finding| OF_THE_DRIVER.contains(&finding.kind));
        Blockers::check(found, &self.settings.preflight)?;
        Ok(())
    }

    fn mixed(&self, members: &ProcessStates, wanted: &'static str) -> Error {
        let states: Vec<String> = members
            .iter()
            .map(|(process, state)| format!("{process} is {}", word(*state)))
            .collect();
        Error::Mixed {
            of: self.scope.name(),
            wanted,
            states: states.join(", "),
        }
    }
}
