//! The one place that waits for child processes.
//!
//! The shim is a child subreaper (prctl(2)): the container's init process becomes its child when the
//! low-level runtime that made it ends, and so does whatever a container leaves behind. So every
//! child is reaped here, and whoever started one asks here for its exit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use rustix::process::{Pid, WaitOptions, WaitStatus, wait};
use tokio::sync::oneshot;

/// How and when a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exit {
    /// The exit code; 128 and the signal's number for one that was killed.
    pub(crate) status: u32,
    /// When it was reaped.
    pub(crate) at: SystemTime,
}

/// Knows who waits for whom.
#[derive(Debug, Default)]
pub(crate) struct Reaper {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// Whoever waits, by pid.
    waiting: HashMap<u32, oneshot::Sender<Exit>>,
    /// Exits that nobody has asked for yet; kept only while somebody may.
    early: HashMap<u32, Exit>,
    watches: usize,
}

/// Keeps the exits of all children from being forgotten until it is dropped: a process may end
/// before its starter knows its pid.
#[derive(Debug)]
pub(crate) struct Watch {
    reaper: Arc<Reaper>,
}

/// The exit of one process, when it comes.
#[derive(Debug)]
pub(crate) struct Pending(oneshot::Receiver<Exit>);

impl Exit {
    /// An exit nobody saw: the process had ended before it could be waited for.
    pub(crate) fn unseen() -> Self {
        Self {
            status: 255,
            at: SystemTime::now(),
        }
    }

    /// The exit of what was killed, now.
    pub(crate) fn killed() -> Self {
        Self {
            status: 137,
            at: SystemTime::now(),
        }
    }

    fn of(status: WaitStatus) -> Self {
        let code = status.exit_status().unwrap_or_else(|| {
            let signal = status.terminating_signal().unwrap_or_default();
            signal + 128
        });
        Self {
            status: u32::try_from(code).unwrap_or(255),
            at: SystemTime::now(),
        }
    }
}

impl Reaper {
    /// To be taken before a process is started.
    pub(crate) fn watch(self: &Arc<Self>) -> Watch {
        self.table().watches += 1;
        Watch {
            reaper: Arc::clone(self),
        }
    }

    /// Reaps all children that have ended; to be called at SIGCHLD.
    pub(crate) fn reap(&self) {
        // Any error but "interrupted" means that there are no children.
        while let Ok(Some((pid, status))) = rustix::io::retry_on_intr(|| wait(WaitOptions::NOHANG))
        {
            self.ended(pid, Exit::of(status));
        }
    }

    fn ended(&self, pid: Pid, exit: Exit) {
        let pid = pid.as_raw_nonzero().get().unsigned_abs();
        let mut table = self.table();
        match table.waiting.remove(&pid) {
            // Who waited may have gone.
            Some(waiter) => drop(waiter.send(exit)),
            None if table.watches > 0 => drop(table.early.insert(pid, exit)),
            None => {}
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    /// The exit of a child that was started since.
    pub(crate) fn exit_of(&self, pid: u32) -> Pending {
        let (sender, receiver) = oneshot::channel();
        let mut table = self.reaper.table();
        match table.early.remove(&pid) {
            Some(exit) => drop(sender.send(exit)),
            None => drop(table.waiting.insert(pid, sender)),
        }
        Pending(receiver)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut table = self.reaper.table();
        table.watches -= 1;
        if table.watches == 0 {
            table.early.clear();
        }
    }
}

impl Pending {
    /// Waits for it.
    pub(crate) async fn wait(self) -> Exit {
        self.0.await.unwrap_or_else(|_| Exit::unseen())
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
        let before = watch.exit_of(10);
        reaper.ended(pid(10), exit(3));
        reaper.ended(pid(11), exit(4));
        assert_eq!(before.wait().await, exit(3));
        assert_eq!(watch.exit_of(11).wait().await, exit(4));
    }

    #[test]
    fn exits_of_strangers_are_kept_only_while_somebody_may_ask() {
        let reaper = Arc::new(Reaper::default());
        reaper.ended(pid(10), exit(0));
        assert!(reaper.table().early.is_empty());
        let (first, second) = (reaper.watch(), reaper.watch());
        reaper.ended(pid(11), exit(0));
        drop(first);
        assert_eq!(reaper.table().early.len(), 1);
        drop(second);
        assert!(reaper.table().early.is_empty());
    }
}
