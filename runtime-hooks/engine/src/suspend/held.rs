//! Finds the CUDA processes, and checks whether they can answer the driver: a driver call about a
//! stopped process would hang (measured on driver 580.159).

use std::fmt;
use std::io;

use stasis_gpu::cuda::Driver;
use stasis_gpu::cuda::failure::ProcessFailure;
use stasis_gpu::cuda::process_set::{ProcessStates, query_states};
use stasis_linux::ProcessRef;
use stasis_linux::cgroup::is_frozen;
use stasis_linux::procfs::{Stat, TaskState};

use super::Error;
use crate::container::Container;
use crate::error::kind::Kind;

/// The cause that stops a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// A stop signal.
    Signal,
    /// A tracer has stopped this thread, which answers the driver.
    Tracer {
        /// The thread.
        thread: i32,
    },
    /// A frozen cgroup.
    Freezer,
}

impl Held {
    /// The kind of the error, for scripts.
    pub(crate) fn kind(self) -> Kind {
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

/// Refuses a process that something prevents from answering the driver, with [`held`].
pub fn refuse_held(
    process: &ProcessRef,
    restore_thread: impl FnOnce() -> Option<i32>,
) -> Result<(), Error> {
    match held(process, restore_thread)? {
        None => Ok(()),
        Some(held) => Err(Error::Held {
            pid: process.pid(),
            name: process.name().to_owned(),
            held,
        }),
    }
}

/// Returns the cause that keeps a process from answering the driver, if there is one.
/// `restore_thread` queries the driver, which works without the process: CRIU's plugin makes this
/// query with every thread stopped, and then lets only the restore thread continue.
fn held(
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
pub(super) fn name(container: &Container) -> String {
    format!("container {}", container.id())
}

/// Returns its CUDA processes, with the driver's current states.
pub(super) fn members(
    container: &Container,
    driver: &dyn Driver,
) -> Result<ProcessStates, ProcessFailure> {
    let snapshot = container.snapshot();
    let snapshot = snapshot.map_err(|error| ProcessFailure::of_query(container.init(), error))?;
    query_states(driver, snapshot.into_candidates())
}

/// The first query of the members, before all of them are known to answer.
pub fn query_members(container: &Container, driver: &dyn Driver) -> Result<ProcessStates, Error> {
    for process in container.snapshot()?.candidates() {
        refuse_held(process, || None)?;
    }
    let members = members(container, driver).map_err(Error::Untouched)?;
    if members.is_empty() {
        return Err(Error::NoMembers(name(container)));
    }
    Ok(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_process_is_held_and_the_driver_not_asked() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let process = ProcessRef::open(i32::try_from(child.id()).unwrap());
        let process = process.unwrap().unwrap();
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
