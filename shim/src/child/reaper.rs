//! The one place that waits for child processes.
//!
//! The shim is a child subreaper (prctl(2)): when the low-level runtime that made a container ends,
//! the container's init process becomes a child of the shim, and so do orphans of the container.
//! So every child is reaped here, and its starter gets the exit from here.

use std::collections::HashMap;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use rustix::process::{Pid, WaitOptions, WaitStatus, wait};
use stasis_linux::exit_status;
use tokio::sync::oneshot;

/// How and when a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exit {
    /// The exit code; for a process that a signal killed, 128 plus the signal's number.
    pub(crate) status: u32,
    /// When it was reaped.
    pub(crate) at: SystemTime,
}

/// Reaps children and gives each exit to the task that waits for it.
#[derive(Debug, Default)]
pub(crate) struct Reaper {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// The waiting tasks, by pid.
    waiting: HashMap<u32, Waiting>,
    /// Exits that no task has asked for yet, by pid, each with its number. They are kept only while
    /// an [`ExitWatch`] exists.
    unclaimed: HashMap<u32, Vec<(u64, Exit)>>,
    watches: usize,
    /// How many exits there were.
    exits: u64,
}

/// A task that waits for an exit.
#[derive(Debug)]
struct Waiting {
    waiter: oneshot::Sender<Exit>,
    since: Instant,
    what: String,
}

/// Keeps the exits of all children until it is dropped: a process may end before the task that
/// started it knows its pid.
#[derive(Debug)]
pub(crate) struct ExitWatch {
    reaper: Arc<Reaper>,
    /// How many exits there were before: an earlier one of the same pid is another process's. In a
    /// restore of minutes pids come again.
    since: u64,
}

/// The exit of one process, which may not have ended yet.
#[derive(Debug)]
pub(crate) struct PendingExit(oneshot::Receiver<Exit>);

impl Exit {
    /// The exit of a process that was reaped before a task asked: its status is lost.
    pub(crate) fn unknown() -> Self {
        Self {
            status: 255,
            at: SystemTime::now(),
        }
    }

    /// The exit of a process that was killed now.
    pub(crate) fn killed() -> Self {
        Self {
            status: 137,
            at: SystemTime::now(),
        }
    }

    fn of(status: WaitStatus) -> Self {
        Self {
            status: exit_status::code(ExitStatus::from_raw(status.as_raw())).into(),
            at: SystemTime::now(),
        }
    }
}

impl Reaper {
    /// Starts to keep exits. Call it before the process is started.
    pub(crate) fn watch(self: &Arc<Self>) -> ExitWatch {
        let mut table = self.table();
        table.watches += 1;
        ExitWatch {
            reaper: Arc::clone(self),
            since: table.exits,
        }
    }

    /// Returns the awaited children: the pid of each, for how long, and what it is.
    pub(crate) fn awaited(&self) -> Vec<String> {
        let table = self.table();
        let line = |(pid, waiting): (&u32, &Waiting)| {
            let seconds = waiting.since.elapsed().as_secs();
            format!("{pid}, for {seconds} s: {}", waiting.what)
        };
        table.waiting.iter().map(line).collect()
    }

    /// Reaps all children that have ended. Call it at SIGCHLD.
    pub(crate) fn reap(&self) {
        // Any error but EINTR means that there are no children.
        while let Ok(Some((pid, status))) = rustix::io::retry_on_intr(|| wait(WaitOptions::NOHANG))
        {
            self.exited(pid, Exit::of(status));
        }
    }

    fn exited(&self, pid: Pid, exit: Exit) {
        let pid = pid.as_raw_nonzero().get().unsigned_abs();
        let mut table = self.table();
        let number = table.exits;
        table.exits += 1;
        match table.waiting.remove(&pid) {
            // The receiver may have been dropped.
            Some(waiting) => drop(waiting.waiter.send(exit)),
            None if table.watches > 0 => {
                table.unclaimed.entry(pid).or_default().push((number, exit));
            }
            None => {}
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Takes the first exit of a pid that is not earlier than a watch.
    fn claim(&mut self, pid: u32, since: u64) -> Option<Exit> {
        let exits = self.unclaimed.get_mut(&pid)?;
        let index = exits.iter().position(|(number, _)| *number >= since)?;
        Some(exits.remove(index).1)
    }
}

impl ExitWatch {
    /// The exit of a child that was started after this watch; `what` says what it is, for the log.
    pub(crate) fn exit_of(&self, pid: u32, what: impl Into<String>) -> PendingExit {
        let (waiter, receiver) = oneshot::channel();
        let mut table = self.reaper.table();
        match table.claim(pid, self.since) {
            Some(exit) => drop(waiter.send(exit)),
            None => {
                let (since, what) = (Instant::now(), what.into());
                let waiting = Waiting {
                    waiter,
                    since,
                    what,
                };
                table.waiting.insert(pid, waiting);
            }
        }
        PendingExit(receiver)
    }
}

impl Drop for ExitWatch {
    fn drop(&mut self) {
        let mut table = self.reaper.table();
        table.watches -= 1;
        if table.watches == 0 {
            table.unclaimed.clear();
        }
    }
}

impl PendingExit {
    /// Waits until the process has ended.
    pub(crate) async fn wait(self) -> Exit {
        self.0.await.unwrap_or_else(|_| Exit::unknown())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(status: u32) -> Exit {
        Exit {
            status,
            at: SystemTime::UNIX_EPOCH,
        }
    }

    fn pid(raw: i32) -> Pid {
        Pid::from_raw(raw).unwrap()
    }

    #[tokio::test]
    async fn an_exit_reaches_whoever_asked_before_or_after() {
        let reaper = Arc::new(Reaper::default());
        let watch = reaper.watch();
        let before = watch.exit_of(10, "runc");
        assert_eq!(reaper.awaited(), ["10, for 0 s: runc"]);
        reaper.exited(pid(10), exit(3));
        reaper.exited(pid(11), exit(4));
        assert_eq!(before.wait().await, exit(3));
        assert_eq!(watch.exit_of(11, "runc").wait().await, exit(4));
    }

    #[test]
    fn exits_of_strangers_are_kept_only_while_somebody_may_ask() {
        let reaper = Arc::new(Reaper::default());
        reaper.exited(pid(10), exit(0));
        assert!(reaper.table().unclaimed.is_empty());
        let (first, second) = (reaper.watch(), reaper.watch());
        reaper.exited(pid(11), exit(0));
        drop(first);
        assert_eq!(reaper.table().unclaimed.len(), 1);
        drop(second);
        assert!(reaper.table().unclaimed.is_empty());
    }

    #[tokio::test]
    async fn an_exit_of_a_pid_that_comes_again_is_not_taken_for_a_later_one() {
        let reaper = Arc::new(Reaper::default());
        let long = reaper.watch();
        reaper.exited(pid(10), exit(1));
        let later = reaper.watch();
        let pending = later.exit_of(10, "runc");
        reaper.exited(pid(10), exit(2));
        assert_eq!(pending.wait().await, exit(2));
        assert_eq!(long.exit_of(10, "runc").wait().await, exit(1));
    }
}
