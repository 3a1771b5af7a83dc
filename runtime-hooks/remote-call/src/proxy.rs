//! A process that shares the memory of another, to make system calls on it.
//!
//! It is made by one clone(2) of its owner and shares nothing else, or the descriptors as well. It
//! is stopped between its calls, and dies with the thread of ours that made it (PTRACE_O_EXITKILL).

use std::io;

use nix::libc;
use nix::sys::ptrace::Options;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use stasis_linux::procfs::TaskState;

use crate::borrowed::BorrowedThread;
use crate::calls::{Calls, TraceOptions};
use crate::clone::{Numbered, make};
use crate::event::{Deadline, next_event};
use crate::gate::gate;
use crate::reaping::{is_reaped, reaping};
use crate::seized::SeizedThread;
use crate::status::state_of_child;

/// What a proxy and its owner have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shared {
    /// Memory: what the proxy maps or unmaps is so for its owner.
    Memory,
    /// The table of descriptors as well.
    MemoryAndDescriptors,
}

/// A stopped process with the memory of another one. It ends when this is dropped.
#[derive(Debug)]
pub struct Proxy {
    calls: Calls,
    owner: Owner,
    /// The proxy in the owner's pid namespace.
    pid_inside: u64,
    ended: bool,
}

/// The process whose memory it is.
#[derive(Debug)]
enum Owner {
    /// We stopped a thread of it.
    Seized(SeizedThread, i32),
    /// CRIU traces its leader, and has stopped it.
    TracedByCriu(i32),
}

impl Owner {
    fn pid(&self) -> i32 {
        match self {
            Self::Seized(_, pid) | Self::TracedByCriu(pid) => *pid,
        }
    }

    fn thread(&self) -> i32 {
        match self {
            Self::Seized(thread, _) => thread.thread().as_raw(),
            Self::TracedByCriu(pid) => *pid,
        }
    }

    fn borrow(&mut self) -> io::Result<BorrowedThread> {
        match self {
            Self::Seized(thread, _) => thread.borrow(),
            Self::TracedByCriu(pid) => {
                BorrowedThread::take(*pid, Pid::from_raw(*pid), TraceOptions::Criu)
            }
        }
    }
}

impl Proxy {
    /// Has a running process make one. A thread of that process is stopped as long as the proxy
    /// lives, with registers of its own. `is_gone` is asked once that thread is ours, since the
    /// pid may have become a stranger's before that.
    ///
    /// # Errors
    /// Those of ptrace(2) (EPERM: the process has a tracer already), `/proc` and clone(2) (EAGAIN:
    /// no more processes are allowed there).
    pub fn of_running(
        pid: i32,
        shared: Shared,
        is_gone: impl FnOnce() -> bool,
    ) -> io::Result<Self> {
        let thread = SeizedThread::stop(pid, is_gone)?;
        Self::of(Owner::Seized(thread, pid), shared, None)
    }

    /// As [`Self::of_running`], sharing memory alone; its number is written there, for whoever has
    /// to reap it ([`crate::reap`]) if we are killed.
    ///
    /// # Errors
    /// As [`Self::of_running`].
    pub fn numbered(
        pid: i32,
        numbered: Numbered,
        is_gone: impl FnOnce() -> bool,
    ) -> io::Result<Self> {
        let thread = SeizedThread::stop(pid, is_gone)?;
        Self::of(Owner::Seized(thread, pid), Shared::Memory, Some(numbered))
    }

    /// Has a process make one whose leader the calling thread traces for CRIU, and which is
    /// stopped.
    ///
    /// # Errors
    /// Those of ptrace(2), `/proc` and clone(2).
    pub fn of_traced(pid: i32) -> io::Result<Self> {
        Self::of(Owner::TracedByCriu(pid), Shared::Memory, None)
    }

    fn of(mut owner: Owner, shared: Shared, numbered: Option<Numbered>) -> io::Result<Self> {
        let more = match shared {
            Shared::Memory => 0,
            Shared::MemoryAndDescriptors => libc::CLONE_FILES,
        };
        let gate = gate(owner.pid())?;
        let made = make(owner.borrow()?, more, numbered)?;
        let options = Options::PTRACE_O_EXITKILL | Options::PTRACE_O_TRACESYSGOOD;
        Ok(Self {
            calls: Calls::new(made.own, gate, TraceOptions::Ours(options)),
            owner,
            pid_inside: made.inside,
            ended: false,
        })
    }

    /// Its pid.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.calls.thread().as_raw()
    }

    /// The thread that it is a child of, which stands still as long as it lives.
    pub(crate) fn owner_thread(&self) -> i32 {
        self.owner.thread()
    }

    /// For somebody who lives on when we do not.
    #[must_use]
    pub fn remains(&self) -> ProxyRemains {
        ProxyRemains {
            own: self.pid(),
            owner: self.owner.pid(),
            pid_inside: self.pid_inside,
        }
    }

    /// Has it make one system call.
    ///
    /// # Errors
    /// The call's own, those of ptrace(2), and `TimedOut`: the proxy is of no more use then.
    pub fn call(&mut self, number: libc::c_long, arguments: &[u64]) -> io::Result<u64> {
        self.calls.call(number, arguments)
    }

    /// Ends it; its owner is as if it had never been.
    ///
    /// # Errors
    /// Those of ptrace(2), and `TimedOut`: it has a copy of its owner's descriptors, and the kernel
    /// closes one of them for as long as a file system does not answer. The owner may have a child
    /// then that it knows nothing of.
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
        // We have seen the end of what we traced; its parent is still to see that of its child.
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

/// What may be left of a proxy when whoever made it was killed: a child that its owner never hears
/// of.
#[derive(Debug, Clone, Copy)]
pub struct ProxyRemains {
    own: i32,
    owner: i32,
    pid_inside: u64,
}

impl ProxyRemains {
    /// Waits for its end, however long its last call takes. Until then that call may still change
    /// the owner's memory: SIGKILL does not interrupt a call that does not sleep. A cgroup of
    /// version 1 that is frozen keeps the proxy from ending; so this is for a process that nobody
    /// waits for without a deadline.
    ///
    /// # Errors
    /// Those of `/proc`.
    pub fn wait_for_end(self) -> io::Result<()> {
        self.wait(Deadline::never())
    }

    /// Waits for its end, and has the owner, which must run, reap it.
    ///
    /// # Errors
    /// Those of ptrace(2) and the call; `TimedOut` for a proxy that does not end.
    pub fn clear(self) -> io::Result<()> {
        self.wait(Deadline::soon())?;
        if self.state()?.is_none() {
            return Ok(());
        }
        let is_gone = || !matches!(self.state(), Ok(Some(_)));
        let mut owner = SeizedThread::stop(self.owner, is_gone)?;
        is_reaped(owner.call(libc::SYS_wait4, &reaping(self.pid_inside))).map(drop)
    }

    fn wait(self, deadline: Deadline) -> io::Result<()> {
        while !matches!(self.state()?, None | Some(TaskState::Ended)) {
            deadline.poll()?;
        }
        Ok(())
    }

    /// Its state, as long as it is a child of its owner.
    fn state(self) -> io::Result<Option<TaskState>> {
        state_of_child(self.own, self.owner)
    }
}
