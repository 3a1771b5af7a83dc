//! A process that shares the memory of another, to make system calls on it.
//!
//! One clone(2) of its owner makes it; it shares nothing else, or the descriptors as well. The
//! proxy is stopped between calls, and dies with our thread that made it (PTRACE_O_EXITKILL).

use std::io;

use nix::libc;
use nix::sys::ptrace::Options;
use nix::sys::signal::{Signal, kill};

use crate::calls::Calls;
use crate::clone::{Numbered, make};
use crate::event::{Deadline, next_event};
use crate::gate::gate;
use crate::reaping::{is_reaped, reaping};
use crate::seized::SeizedThread;

/// The resources that a proxy shares with its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shared {
    /// Memory: the proxy's mappings and unmappings change its owner's memory.
    Memory,
    /// The table of descriptors as well.
    MemoryAndDescriptors,
}

/// A stopped process with the memory of another one. It ends when this is dropped.
#[derive(Debug)]
pub struct Proxy {
    calls: Calls,
    /// The process that owns the memory; one of its threads is stopped.
    owner: SeizedThread,
    /// The pid of the proxy in the owner's pid namespace.
    pid_inside: u64,
    ended: bool,
}

impl Proxy {
    /// Has a running process make a proxy. A thread of that process is stopped as long as the proxy
    /// lives, with registers of its own. Calls `is_gone` once we hold that thread, since the pid
    /// may have become another process's before.
    ///
    /// # Errors
    /// Errors of ptrace(2) (EPERM: the process has a tracer already), `/proc` and clone(2) (EAGAIN:
    /// no more processes are allowed there).
    pub fn of_running(
        pid: i32,
        shared: Shared,
        is_gone: impl FnOnce() -> bool,
    ) -> io::Result<Self> {
        let owner = SeizedThread::stop(pid, is_gone)?;
        Self::of(pid, owner, shared, None)
    }

    /// As [`Self::of_running`], sharing memory alone; the kernel writes the proxy's number there,
    /// for the process that has to reap it ([`crate::reap`]) if we are killed.
    pub fn numbered(
        pid: i32,
        numbered: Numbered,
        is_gone: impl FnOnce() -> bool,
    ) -> io::Result<Self> {
        let owner = SeizedThread::stop(pid, is_gone)?;
        Self::of(pid, owner, Shared::Memory, Some(numbered))
    }

    fn of(
        pid: i32,
        mut owner: SeizedThread,
        shared: Shared,
        numbered: Option<Numbered>,
    ) -> io::Result<Self> {
        let more = match shared {
            Shared::Memory => 0,
            Shared::MemoryAndDescriptors => libc::CLONE_FILES,
        };
        let gate = gate(pid)?;
        let made = make(owner.borrow()?, more, numbered)?;
        let options = Options::PTRACE_O_EXITKILL | Options::PTRACE_O_TRACESYSGOOD;
        Ok(Self {
            calls: Calls::new(made.own, gate, options),
            owner,
            pid_inside: made.inside,
            ended: false,
        })
    }

    /// Returns its pid.
    pub fn pid(&self) -> i32 {
        self.calls.thread().as_raw()
    }

    /// Returns the thread that made the proxy, which is stopped as long as the proxy lives.
    pub(crate) fn owner_thread(&self) -> i32 {
        self.owner.thread().as_raw()
    }

    /// Has the proxy make one system call.
    ///
    /// # Errors
    /// The call's own, those of ptrace(2), and `TimedOut`: the proxy is of no more use then.
    pub fn call(&mut self, number: libc::c_long, arguments: &[u64]) -> io::Result<u64> {
        self.calls.call(number, arguments)
    }

    /// Ends the proxy; nothing of it is left in its owner.
    ///
    /// # Errors
    /// Errors of ptrace(2), and `TimedOut`: the proxy has a copy of its owner's descriptors, and
    /// the kernel closes one of them for as long as a file system does not answer. The owner may
    /// then have a child that it does not know of.
    pub fn end(mut self) -> io::Result<()> {
        self.finish()
    }

    fn finish(&mut self) -> io::Result<()> {
        if self.ended {
            return Ok(());
        }
        self.ended = true;
        kill(self.calls.thread(), Signal::SIGKILL)?;
        // As long as it takes ([`Deadline::never`]), if the kernel finishes a call first that may
        // still change the owner's memory.
        let deadline = match self.calls.may_change_memory() {
            true => Deadline::never(),
            false => Deadline::soon(),
        };
        loop {
            match next_event(self.calls.thread(), deadline) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                other => other.map(drop)?,
            }
        }
        let deadline = Deadline::soon();
        // We have seen the end of our tracee; its parent has yet to see the end of its child.
        while !is_reaped(self.reap())? {
            deadline.poll()?;
        }
        Ok(())
    }

    fn reap(&mut self) -> io::Result<u64> {
        let mut owner = self.owner.borrow()?;
        owner.call(libc::SYS_wait4, &reaping(self.pid_inside))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}
