//! Finds out why a process cannot answer the driver: one of its threads, or all, are stopped.

use std::fmt;
use std::io;
use std::thread::sleep;
use std::time::Duration;

use rustix::process::getpid;
use stasis_linux::ProcessRef;
use stasis_linux::cgroup::Cgroup;
use stasis_linux::procfs::{Stat, Status, TaskState, threads};

/// Longer than a profiler or debugger stops a process that it only looks at (py-spy, gdb -batch).
const LOOK: Duration = Duration::from_millis(100);

/// The cause of a process's stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// A stop signal (`SIGSTOP`, a Ctrl-Z).
    Signal {
        /// The process.
        pid: i32,
    },
    /// A debugger or tracer.
    Traced {
        /// The stopped thread.
        thread: i32,
        /// The tracer; 0 if it is in another pid namespace.
        by: i32,
    },
    /// A cgroup above the container's is frozen, which only its owner may thaw. `None` if it is not
    /// known which.
    FrozenAncestor(Option<Cgroup>),
}

impl Stop {
    /// Reads the state of every thread of a process: a debugger may stop a single one, and only
    /// the driver knows which of them answers it. A process that has ended is not stopped.
    pub fn of(pid: i32) -> io::Result<Option<Self>> {
        for thread in threads(pid)? {
            // `status` names the tracer, but reading it takes several times as long as `stat`.
            let state = Stat::of_thread(pid, thread)?.map(|stat| stat.state);
            if !matches!(state, Some(TaskState::Stopped | TaskState::Traced)) {
                continue;
            }
            let status = Status::of_thread(pid, thread)?;
            if let Some(stop) = status.and_then(|status| of_status(pid, thread, &status)) {
                return Ok(Some(stop));
            }
        }
        Ok(None)
    }
}

fn of_status(pid: i32, thread: i32, status: &Status) -> Option<Stop> {
    match status.state()? {
        TaskState::Stopped => Some(Stop::Signal { pid }),
        TaskState::Traced => Some(Stop::Traced {
            thread,
            by: status.tracer()?,
        }),
        TaskState::Live | TaskState::Ended => None,
    }
}

impl Stop {
    /// As [`Stop::of`], but ignores stops of a moment, and stops by a child of ours, which copies
    /// the process's GPU contents and resumes it: on a busy machine that takes longer.
    pub fn lasting(pid: i32) -> io::Result<Option<Self>> {
        let stop = twice(|| Self::of(pid), || sleep(LOOK))?;
        Ok(stop.filter(|stop| !stop.is_ours()))
    }

    /// The stop of a process of this container that is frozen from above.
    #[must_use]
    pub fn from_above(container: &Cgroup) -> Self {
        Self::FrozenAncestor(container.frozen_ancestor().ok().flatten())
    }

    fn is_ours(&self) -> bool {
        let Self::Traced { by, .. } = self else {
            return false;
        };
        let parent = ProcessRef::open(*by).and_then(|found| match found {
            Some(process) => process.parent(),
            None => Ok(None),
        });
        let own = getpid().as_raw_pid();
        parent.is_ok_and(|parent| parent.is_some_and(|parent| parent.pid() == own))
    }
}

/// Returns the stop after the pause, if there is one both before and after it.
fn twice(
    ask: impl Fn() -> io::Result<Option<Stop>>,
    pause: impl FnOnce(),
) -> io::Result<Option<Stop>> {
    if ask()?.is_none() {
        return Ok(None);
    }
    pause();
    ask()
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal { pid } => {
                write!(
                    f,
                    "it is stopped by a signal (`kill -CONT {pid}` lets it go on)"
                )
            }
            Self::Traced { thread, by: 0 } => write!(
                f,
                "its thread {thread} is stopped by a debugger in another pid namespace"
            ),
            Self::Traced { thread, by } => write!(
                f,
                "its thread {thread} is stopped by process {by}, which traces it"
            ),
            Self::FrozenAncestor(above) => {
                f.write_str("it is held by a frozen cgroup above the container's")?;
                let Some(above) = above else { return Ok(()) };
                let (path, thaws) = (above.directory().display(), above.command_to_thaw());
                write!(f, ", {path} (`{thaws}` thaws it)")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    use super::*;

    fn of_text(text: &str) -> Option<Stop> {
        of_status(7, 8, &Status::from_text(text.into()))
    }

    #[test]
    fn a_tracer_is_named() {
        let text = "Name:\tx\nState:\tt (tracing stop)\nTgid:\t7\nTracerPid:\t4711\n";
        let (thread, by) = (8, 4711);
        assert_eq!(of_text(text), Some(Stop::Traced { thread, by }));
        let text = "Name:\tx\nState:\tS (sleeping)\nTracerPid:\t4711\n";
        assert_eq!(of_text(text), None, "traced, and runs");
    }

    #[test]
    fn who_is_stopped_for_a_moment_only_is_not_stopped() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let ask = || Stop::of(pid);
        let send = |signal, until: fn(&Option<Stop>) -> bool| {
            kill(Pid::from_raw(pid), signal).unwrap();
            while !until(&ask().unwrap()) {
                std::thread::yield_now();
            }
        };
        send(Signal::SIGSTOP, Option::is_some);
        assert_eq!(twice(ask, || ()).unwrap(), Some(Stop::Signal { pid }));
        let goes_on = || send(Signal::SIGCONT, Option::is_none);
        assert_eq!(twice(ask, goes_on).unwrap(), None);
        assert_eq!(
            twice(ask, || panic!("it is not asked again")).unwrap(),
            None
        );
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_child_of_ours_that_traces_it_is_known() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let traced_by = |by: u32| Stop::Traced {
            thread: 7,
            by: by.try_into().unwrap(),
        };
        assert!(traced_by(child.id()).is_ours());
        assert!(!traced_by(std::process::id()).is_ours());
        assert!(!traced_by(1).is_ours());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_has_ended_is_not_stopped() {
        assert_eq!(Stop::of(i32::MAX).unwrap(), None);
    }
}
