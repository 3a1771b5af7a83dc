//! Finds the processes that are meant, and checks whether they can answer the driver: a driver call
//! about a stopped process would hang (measured on driver 580.159).

use std::fmt;
use std::io;

use stasis_linux::ProcessRef;
use stasis_linux::cgroup::is_frozen;
use stasis_linux::procfs::{Stat, Status, TaskState};

use super::Error;
use crate::cli::locate::Located;
use crate::cuda::Driver;
use crate::cuda::failure::ProcessFailure;
use crate::cuda::process_set::{ProcessStates, query_states};
use crate::error::kind::Kind;

/// What stops a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    /// A stop signal.
    Signal,
    /// A tracer has stopped this thread, which answers the driver.
    Tracer { thread: i32 },
    /// A frozen cgroup.
    Freezer,
}

impl Held {
    /// The kind of the error, for scripts.
    pub(super) fn kind(self) -> Kind {
        match self {
            Self::Signal | Self::Tracer { .. } => Kind::ProcessStopped,
            Self::Freezer => Kind::ContainerPaused,
        }
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal => f.write_str("is stopped by a signal (continue it with kill -CONT)"),
            Self::Tracer { thread } => {
                write!(f, "has its restore thread {thread} stopped by a tracer")
            }
            Self::Freezer => f.write_str("is in a frozen cgroup (resume its container)"),
        }
    }
}

/// Opens the process with this pid, or with a thread of this id: CRIU's plugin asks for the state
/// of the restore thread.
pub(crate) fn open(pid: i32) -> Result<ProcessRef, Error> {
    let unreadable = |source| Error::Unreadable { pid, source };
    let status = Status::of(pid).map_err(unreadable)?;
    let process = status.and_then(|status| status.process());
    let process = process.ok_or(Error::NoProcess(pid))?;
    let opened = ProcessRef::open(process).map_err(unreadable)?;
    opened.ok_or(Error::NoProcess(pid))
}

/// Returns what prevents a process from answering the driver, if anything does. `restore_thread`
/// queries the driver, which needs no help of the process for that: CRIU's plugin makes this query
/// with every thread stopped, and then lets only the restore thread continue.
pub(crate) fn held(
    process: &ProcessRef,
    restore_thread: impl FnOnce() -> Option<i32>,
) -> Result<Option<Held>, Error> {
    let pid = process.pid();
    let unreadable = |source| Error::Unreadable { pid, source };
    if is_frozen(pid).map_err(unreadable)? {
        return Ok(Some(Held::Freezer));
    }
    match state(pid, pid).map_err(unreadable)? {
        Some(TaskState::Stopped) => Ok(Some(Held::Signal)),
        Some(TaskState::Traced) => {
            let thread = restore_thread().unwrap_or(pid);
            let state = state(pid, thread).map_err(unreadable)?;
            let is_stopped = matches!(state, Some(TaskState::Stopped | TaskState::Traced));
            Ok(is_stopped.then_some(Held::Tracer { thread }))
        }
        _ => Ok(None),
    }
}

fn state(pid: i32, thread: i32) -> io::Result<Option<TaskState>> {
    Ok(Stat::of_thread(pid, thread)?.map(|stat| stat.state))
}

/// The name of a container, in messages.
pub(super) fn name(found: &Located) -> String {
    format!("container {}", found.container.id())
}

/// Its processes with CUDA, as the driver has them now.
pub(super) fn members(
    found: &Located,
    driver: &dyn Driver,
) -> Result<ProcessStates, ProcessFailure> {
    let container = &found.container;
    let snapshot = container.snapshot();
    let snapshot = snapshot.map_err(|error| ProcessFailure::of_query(container.init(), error))?;
    query_states(driver, snapshot.into_candidates())
}

/// The first query of the members, before all of them are known to answer.
pub(super) fn query_members(found: &Located, driver: &dyn Driver) -> Result<ProcessStates, Error> {
    for process in found.container.snapshot()?.candidates() {
        if let Some(held) = held(process, || None)? {
            return Err(Error::Held {
                pid: process.pid(),
                name: process.name().to_owned(),
                held,
            });
        }
    }
    let members = members(found, driver).map_err(Error::Untouched)?;
    if members.is_empty() {
        return Err(Error::NoMembers(name(found)));
    }
    Ok(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stands_for_its_process() {
        let own = i32::try_from(std::process::id()).unwrap();
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let thread = nix::unistd::gettid().as_raw();
                send.send((thread, open(thread).map(|process| process.pid())))
                    .unwrap();
            });
            let (thread, found) = receive.recv().unwrap();
            assert_ne!(thread, own);
            assert_eq!(found.unwrap(), own);
        });
        assert!(matches!(open(i32::MAX), Err(Error::NoProcess(_))));
    }

    #[test]
    fn a_stopped_process_is_held_and_the_driver_not_asked() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let process = open(i32::try_from(child.id()).unwrap()).unwrap();
        let never = || panic!("a process that runs is not asked about");
        assert_eq!(held(&process, never).unwrap(), None);
        let pid = nix::unistd::Pid::from_raw(process.pid());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
        while process.state().unwrap() != TaskState::Stopped {
            std::thread::yield_now();
        }
        assert_eq!(held(&process, never).unwrap(), Some(Held::Signal));
        process.kill().unwrap();
        child.wait().unwrap();
    }
}
