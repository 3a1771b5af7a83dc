//! What is done to all CUDA processes of a tree or a container, together: locked at the same time,
//! checkpointed and restored side by side, and all brought back if one fails.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::sync::Arc;

use stasis_config::{BlockerKind, Settings};

use super::arguments::{Action, Arguments, Operation as Asked};
use super::reach::{held, open};
use super::{Error, word};
use crate::blocker::Blockers;
use crate::blockers::{self, Scene};
use crate::cancel::Cancel;
use crate::cuda::{CudaDriver, CudaState, Driver};
use crate::fault::{Fault, JobError, Step};
use crate::gpu::Inventory;
use crate::huge_pages::HugePages;
use crate::job::{Checkpointed, CudaJob, Locked};
use crate::locate::{Located, locate};
use crate::lock::LockLimits;
use crate::members::{Members, look};
use crate::operation::Operation;
use crate::process::ProcessRef;
use crate::watchdog::{CallLimits, MARGIN, WatchedDriver};

/// What keeps the driver from saving or restoring a process; the rest keeps CRIU, who is not asked here.
const OF_THE_DRIVER: [BlockerKind; 5] = [
    BlockerKind::FailedState,
    BlockerKind::NcclP2p,
    BlockerKind::Mps,
    BlockerKind::Mig,
    BlockerKind::ManagedMemory,
];

/// Does what is asked for; the answer, one line for each process.
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
        return tell(&scope, &driver, asked);
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

/// Whose CUDA processes.
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

    /// The pid by which a process is recorded.
    pub(super) fn pid_inside(&self, process: &ProcessRef) -> i32 {
        match self {
            Self::Tree(_) => process.pid(),
            Self::Container(found) => found.container.pid_inside(process).unwrap_or(process.pid()),
        }
    }

    fn processes(&self) -> io::Result<Vec<ProcessRef>> {
        match self {
            Self::Tree(root) => tree(root.pid()),
            Self::Container(found) => found.container.processes(),
        }
    }

    fn members(&self, driver: &dyn Driver) -> Result<Members, Fault> {
        let init = match self {
            Self::Tree(root) => root,
            Self::Container(found) => found.container.init(),
        };
        let processes = self.processes();
        look(
            driver,
            processes.map_err(|error| Fault::of_look(init, error))?,
        )
    }

    /// The members at first, when it is not known yet whether all of them can answer.
    fn first_look(&self, driver: &dyn Driver) -> Result<Members, Error> {
        for process in self.processes()? {
            let stands = held(&process, || None)?;
            if let Some(held) = stands
                && process.may_use_cuda()?
            {
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

/// A process and all that descend from it. Orphans belong to whoever adopted them.
fn tree(root: i32) -> io::Result<Vec<ProcessRef>> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc")? {
        let Ok(pid) = entry?.file_name().to_string_lossy().parse() else {
            continue;
        };
        if let Some(parent) = ProcessRef::parent_of(pid)? {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut pids = vec![root];
    let mut next = 0;
    while let Some(pid) = pids.get(next).copied() {
        // Each has one parent, so none is met twice.
        pids.extend(children.remove(&pid).unwrap_or_default());
        next += 1;
    }
    let opened = pids.into_iter().map(ProcessRef::open);
    opened.filter_map(Result::transpose).collect()
}

fn tell(scope: &Scope, driver: &dyn Driver, asked: Asked) -> Result<String, Error> {
    let mut answer = String::new();
    for (process, state) in scope.first_look(driver)? {
        let value = if asked == Asked::State {
            word(state)
        } else {
            let thread = driver.restore_thread(process.pid());
            let fault = |error| Error::Untouched(Fault::of(Step::Look, &process, error));
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
    /// The right to operate on the container, if it is one.
    pub(super) operation: Option<Operation>,
    driver: WatchedDriver,
    cancel: Cancel,
}

impl Group<'_> {
    fn change(&self, asked: Asked) -> Result<(), Error> {
        let members = self.scope.first_look(&self.driver)?;
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

    fn suspend(&self, members: &Members) -> Result<(), Error> {
        let inventory = self.inventory();
        self.refuse_blockers(members, &inventory)?;
        let suspended = self
            .make_room(members, &inventory)
            .and_then(|()| self.lock())
            .and_then(|job| self.checkpoint(job));
        // A failure has brought all back, but for those that are lost.
        if suspended.is_err() {
            self.forget();
        }
        suspended
    }

    fn go_on(&self, job: CudaJob<'_, Locked>) -> Result<(), Error> {
        job.unlock()?;
        self.forget();
        Ok(())
    }

    /// NVML is not needed for what follows, and what it alone can tell is rare.
    fn inventory(&self) -> Inventory {
        Inventory::read(self.settings.driver.nvml.as_deref()).unwrap_or_default()
    }

    /// All locked; those that are already are taken as they are.
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
        // Only speed depends on them.
        let state_dir = &self.settings.paths.state_dir;
        let wanted = self.settings.gpu_checkpoint.huge_pages;
        let _huge_pages = wanted.then(|| HugePages::switch_on(state_dir));
        let job = job.checkpoint()?;
        if self.cancel.requested() {
            let lost = job.roll_back();
            return Err(Error::Cancelled { lost });
        }
        Ok(())
    }

    fn restore(&self, members: Members) -> Result<CudaJob<'_, Locked>, Error> {
        self.admit_restore()?;
        let processes = members.into_iter().map(|(process, _)| process).collect();
        let job = CudaJob::<Checkpointed>::of_restored(&self.driver, processes)
            .map_err(Error::Untouched)?;
        Ok(job.restore(&self.arguments.map())?)
    }

    fn refuse_blockers(&self, members: &Members, inventory: &Inventory) -> Result<(), Error> {
        let processes = self.scope.processes()?;
        let mut found = blockers::find(&Scene {
            processes: &processes,
            members,
            inventory,
        })?;
        found.retain(|finding| OF_THE_DRIVER.contains(&finding.kind));
        Blockers::judge(found, &self.settings.preflight)?;
        Ok(())
    }

    fn mixed(&self, members: &Members, wanted: &'static str) -> Error {
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
