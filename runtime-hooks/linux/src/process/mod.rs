//! A process, held so that no other is mistaken for it.
//!
//! A pid alone may be reused between two uses. [`ProcessRef`] keeps a pidfd and the start time, so
//! every later use can check that it is still the same process.

mod confinement;
pub mod expired_timers;
pub mod host_name;
pub mod kcmp;
pub mod network;
mod nvidia;
pub mod removed_segments;
pub mod unix_sockets;

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Signal, getpid, pidfd_getfd, pidfd_open, pidfd_send_signal,
};

use crate::escape::escaped;
use crate::procfs::{Stat, Status, TaskState, is_dying};

/// A process that is held by pidfd. A clone holds it by the same one.
#[derive(Debug, Clone)]
pub struct ProcessRef {
    pid: i32,
    start_time: u64,
    namespace_pids: Vec<i32>,
    /// The command name, escaped for messages.
    name: String,
    pidfd: Arc<OwnedFd>,
}

impl ProcessRef {
    /// Opens a process. `None` if there is no such process, or only its zombie.
    ///
    /// # Errors
    /// An I/O error, apart from "no such process".
    pub fn open(pid: i32) -> io::Result<Option<Self>> {
        let Some(raw) = Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw) else {
            return Ok(None);
        };
        let pidfd = match pidfd_open(raw, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            // EINVAL: a thread that is not the first of its process; also, before Linux 6.9, a task
            // that is just being reaped.
            Err(Errno::SRCH | Errno::INVAL) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let (Some(stat), Some(status)) = (Stat::of(pid)?, Status::of(pid)?) else {
            return Ok(None);
        };
        let no_pids = || io::Error::other(format!("/proc/{pid}/status has no line NSpid"));
        let process = Self {
            pid,
            start_time: stat.start_time,
            namespace_pids: status.namespace_pids().ok_or_else(no_pids)?,
            name: escaped(&stat.name),
            pidfd: Arc::new(pidfd),
        };
        // Only now: the files read above belonged to the process of the pidfd if that still lives.
        let alive = process.is_alive()? && stat.state != TaskState::Ended;
        Ok(alive.then_some(process))
    }

    /// Opens this process.
    pub fn own() -> io::Result<Self> {
        let own = Self::open(getpid().as_raw_nonzero().get())?;
        own.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Opens a child of this process, which is not reaped yet. `None` if it has ended.
    pub fn of_child(child: &Child) -> io::Result<Option<Self>> {
        Self::open(child.id().cast_signed())
    }

    /// The pid as this process sees it.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Start time in clock ticks since boot: with the pid, the identity of the process.
    pub fn start_time(&self) -> u64 {
        self.start_time
    }

    /// The command name (`comm`), for messages: what is not UTF-8 is replaced, control characters
    /// are escaped.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Opens its parent; `None` if either has ended, or the parent is not visible from here.
    pub fn parent(&self) -> io::Result<Option<Self>> {
        let Some(pid) = Stat::of(self.pid)?.map(|stat| stat.parent) else {
            return Ok(None);
        };
        let Some(parent) = Self::open(pid)? else {
            return Ok(None);
        };
        // The kernel gives the children of a process that ends to another one. So a pid that is
        // still the parent's was not reused.
        let is_still = Stat::of(self.pid)?.is_some_and(|stat| stat.parent == pid)
            && !self.is_gone()
            && !parent.is_gone();
        Ok(is_still.then_some(parent))
    }

    /// The pid in the pid namespace `depth` levels below ours (0 is ours); for a process of a
    /// container, `depth` is that of the container's init. It survives checkpoint and restore.
    pub fn pid_at_depth(&self, depth: usize) -> Option<i32> {
        self.namespace_pids.get(depth).copied()
    }

    /// How many pid namespaces below ours the process lives.
    pub fn namespace_depth(&self) -> usize {
        self.namespace_pids.len().saturating_sub(1)
    }

    /// Whether the process has not ended.
    pub fn is_alive(&self) -> io::Result<bool> {
        self.outlives(Duration::ZERO)
    }

    /// Whether the process has not ended when `time` has passed.
    pub fn outlives(&self, time: Duration) -> io::Result<bool> {
        let began = Instant::now();
        loop {
            let mut fds = [PollFd::from_borrowed_fd(self.pidfd.as_fd(), PollFlags::IN)];
            let left = time.saturating_sub(began.elapsed());
            let left = Timespec::try_from(left).map_err(io::Error::other)?;
            // A pidfd becomes readable when its process ends (pidfd_open(2)). A signal that we have
            // a handler for cuts poll(2) off.
            match poll(&mut fds, Some(&left)) {
                Err(Errno::INTR) => {}
                polled => return Ok(polled? == 0),
            }
        }
    }

    /// Whether the process is known to have ended.
    pub fn is_gone(&self) -> bool {
        matches!(self.is_alive(), Ok(false))
    }

    /// Duplicates an open file of the process, by the number of its descriptor.
    ///
    /// # Errors
    /// Errors of pidfd_getfd(2): EBADF if the descriptor is not open.
    pub fn descriptor(&self, number: i32) -> io::Result<OwnedFd> {
        let flags = PidfdGetfdFlags::empty();
        Ok(pidfd_getfd(self.pidfd.as_fd(), number, flags)?)
    }

    /// Returns the state of the process's first thread; [`TaskState::Ended`] if it is gone.
    pub fn state(&self) -> io::Result<TaskState> {
        Ok(Stat::of(self.pid)?.map_or(TaskState::Ended, |stat| stat.state))
    }

    /// Returns whether the process is ending, or has ended: a killed process is dying before it is
    /// gone, on a busy machine for long.
    pub fn is_dying(&self) -> io::Result<bool> {
        is_dying(self.pid, self.pid)
    }

    /// Ends the process.
    ///
    /// # Errors
    /// An I/O error; a process that has ended already is no error.
    pub fn kill(&self) -> io::Result<()> {
        self.send(Signal::KILL)
    }

    /// Asks the process to end.
    pub fn terminate(&self) -> io::Result<()> {
        self.send(Signal::TERM)
    }

    /// Stops the process, until it is resumed or ended.
    pub fn stop(&self) -> io::Result<()> {
        self.send(Signal::STOP)
    }

    /// Lets the process go on, if a stop signal holds it.
    pub fn cont(&self) -> io::Result<()> {
        self.send(Signal::CONT)
    }

    fn send(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(self.pidfd.as_fd(), signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl fmt::Display for ProcessRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.name)
    }
}

#[cfg(test)]
pub(crate) mod tests;
