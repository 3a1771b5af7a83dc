//! A process that has the memory of another, to make system calls on it.
//!
//! A thread that makes calls for us has foreign registers, and if we end meanwhile it runs wild. For calls that take long,
//! the thread makes just one, clone(2), and what comes of it makes the others: it shares the memory and nothing else, and is killed
//! with us.

use std::fs;
use std::io;
use std::thread::sleep;
use std::time::Instant;

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::traced::TracedThread;
use crate::{EVENT_STOP, PATIENCE, POLL, RemoteThread, unexpected};

/// A stopped process with the memory of another one.
#[derive(Debug)]
pub struct MemoryProxy {
    calls: TracedThread,
    /// Whose memory it is.
    owner: i32,
    /// The proxy in the owner's pid namespace.
    pid_inside: u64,
}

impl MemoryProxy {
    /// Has a process, whose leader the calling thread traces and which is stopped, make one.
    ///
    /// # Errors
    /// What ptrace, `/proc` or clone(2) said (EAGAIN: no more processes are allowed there).
    pub fn of(owner: i32) -> io::Result<Self> {
        // Traced as its parent is, which so does not hear of its end (no signal in the lowest byte).
        let flags = libc::CLONE_VM | libc::CLONE_PTRACE;
        let before = children(owner)?;
        let mut parent = TracedThread::of(owner)?;
        let gate = parent.gate();
        let pid_inside = parent.call(libc::SYS_clone, &[flags.unsigned_abs().into()])?;
        drop(parent);
        let own = children(owner)?
            .into_iter()
            .find(|child| !before.contains(child))
            .ok_or(io::ErrorKind::NotFound)?;
        let adopted = adopt(own).and_then(|()| TracedThread::with_gate(own, gate));
        match adopted {
            Ok(calls) => Ok(Self {
                calls,
                owner,
                pid_inside,
            }),
            Err(error) => {
                end(own, owner, pid_inside)?;
                Err(error)
            }
        }
    }

    /// Its pid.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.calls.thread().as_raw()
    }

    /// For somebody who lives on when we do not.
    #[must_use]
    pub fn remains(&self) -> ProxyRemains {
        ProxyRemains {
            own: self.pid(),
            owner: self.owner,
            pid_inside: self.pid_inside,
        }
    }

    /// Has it make one system call.
    ///
    /// # Errors
    /// What the call said, or ptrace.
    pub fn call(&mut self, number: libc::c_long, arguments: &[u64]) -> io::Result<u64> {
        self.calls.call(number, arguments)
    }

    /// Ends it; its owner is as if it had never been.
    ///
    /// # Errors
    /// What ptrace said; the owner may have a child then that it knows nothing of.
    pub fn end(self) -> io::Result<()> {
        let Self {
            calls,
            owner,
            pid_inside,
        } = self;
        let own = calls.thread().as_raw();
        // It needs no registers any more.
        std::mem::forget(calls);
        end(own, owner, pid_inside)
    }
}

/// What may be left of a proxy when whoever made it was killed: a child that its owner never hears of.
#[derive(Debug, Clone, Copy)]
pub struct ProxyRemains {
    own: i32,
    owner: i32,
    pid_inside: u64,
}

impl ProxyRemains {
    /// Waits for its end, and has the owner, which must run, take note of it.
    ///
    /// # Errors
    /// What [`RemoteThread::stop`] and the call said; a proxy that does not end.
    pub fn clear(self) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.state() {
                None => return Ok(()),
                Some('Z') => break,
                Some(_) if Instant::now() > deadline => return Err(io::ErrorKind::TimedOut.into()),
                Some(_) => sleep(POLL),
            }
        }
        let is_gone = || self.state().is_none();
        let mut owner = RemoteThread::stop(self.owner, is_gone)?;
        let flags = (libc::__WALL | libc::WNOHANG).unsigned_abs().into();
        owner.call(libc::SYS_wait4, &[self.pid_inside, 0, flags, 0])?;
        Ok(())
    }

    /// In `ps`'s letters, as long as it is a child of its owner.
    fn state(self) -> Option<char> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.own)).ok()?;
        let (state, rest) = stat.rsplit_once(") ")?.1.split_once(' ')?;
        let parent = rest.split(' ').next()?;
        (parent == self.owner.to_string()).then_some(state.chars().next()?)
    }
}

/// Waits for its first stop; from then on it dies with us.
fn adopt(own: i32) -> io::Result<()> {
    let own = Pid::from_raw(own);
    match waitpid(own, Some(WaitPidFlag::__WALL))? {
        WaitStatus::PtraceEvent(_, _, EVENT_STOP) => {}
        other => return Err(unexpected(other)),
    }
    let suspending = Options::from_bits_retain(libc::PTRACE_O_SUSPEND_SECCOMP);
    match ptrace::setoptions(own, Options::PTRACE_O_EXITKILL | suspending) {
        Err(Errno::EPERM | Errno::EINVAL) => {
            Ok(ptrace::setoptions(own, Options::PTRACE_O_EXITKILL)?)
        }
        other => Ok(other?),
    }
}

fn end(own: i32, owner: i32, pid_inside: u64) -> io::Result<()> {
    let own = Pid::from_raw(own);
    kill(own, Signal::SIGKILL)?;
    loop {
        match waitpid(own, Some(WaitPidFlag::__WALL))? {
            WaitStatus::Signaled(..) | WaitStatus::Exited(..) => break,
            _ => {}
        }
    }
    // We have seen the end of what we traced; its parent is still to see that of its child.
    let mut parent = TracedThread::of(owner)?;
    let flags = (libc::__WALL | libc::WNOHANG).unsigned_abs().into();
    while parent.call(libc::SYS_wait4, &[pid_inside, 0, flags, 0])? == 0 {}
    Ok(())
}

fn children(pid: i32) -> io::Result<Vec<i32>> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    let number = |word: &str| word.parse().map_err(io::Error::other);
    text.split_whitespace().map(number).collect()
}
