//! A process that shares the memory of another and executes code there.
//!
//! A [`Proxy`] makes it, as a child of the proxy's owner: only we and the kernel know of it. It has
//! the seccomp filter, the credentials and the cgroup of its owner, and a table of descriptors of
//! its own. All signals are blocked, and it dies with our thread that made it, which has to look
//! after it: a traced process stands still at every signal that cannot be blocked until its tracer
//! resumes it.

use std::io;

use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::clone::{Numbered, arguments};
use crate::event::{Deadline, Event, event_now, next_event};
use crate::ffi::{RunTo, resume};
use crate::proxy::Proxy;
use crate::registers::{Registers, Start};
use crate::status::traced_child;

/// A worker. Dropping this kills it; its owner has to reap it ([`crate::reap`]).
#[derive(Debug)]
pub struct Worker {
    pid: Pid,
    life: Life,
}

/// Whether a worker may still run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// It may still run.
    Goes,
    /// It has ended.
    Ended,
}

impl Worker {
    /// Has a proxy make a worker, which is stopped until it is started.
    ///
    /// # Errors
    /// Errors of clone(2) (EAGAIN: no more processes are allowed there), ptrace(2) and `/proc`.
    pub fn make(proxy: &mut Proxy, numbered: Numbered) -> io::Result<Self> {
        // A sibling of the proxy: it outlives it, and no other process becomes its parent then.
        let arguments = arguments(libc::CLONE_PARENT, Some(numbered), None);
        let inside = proxy.call(libc::SYS_clone, &arguments)?;
        let pid = Pid::from_raw(traced_child(proxy.owner_thread(), inside)?);
        let worker = Self {
            pid,
            life: Life::Goes,
        };
        match next_event(pid, Deadline::soon())? {
            // The proxy's filter was suspended when it made the call: this one's is not.
            Event::Stop => ptrace::setoptions(pid, Options::PTRACE_O_EXITKILL)?,
            other => return Err(io::Error::other(format!("unexpected stop: {other:?}"))),
        }
        Ok(worker)
    }

    /// Starts the worker, from its first stop.
    pub fn start(&mut self, start: Start) -> io::Result<()> {
        let Start {
            code,
            stack,
            argument,
        } = start;
        let registers = Registers::read(self.pid)?.starting(code, stack, argument);
        registers.write(self.pid)?;
        resume(self.pid, RunTo::Event, 0)
    }

    /// Returns its pid.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// Resumes the worker wherever it has stopped. To be called again and again while it is needed.
    ///
    /// # Errors
    /// Errors of ptrace(2) and waitpid(2).
    pub fn look_after(&mut self) -> io::Result<Life> {
        while self.life == Life::Goes {
            match event_now(self.pid) {
                Ok(None) => break,
                Ok(Some(event)) => self.pass(event)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => self.life = Life::Ended,
                Err(error) => return Err(error),
            }
        }
        Ok(self.life)
    }

    /// Handles a stop. The worker is no process of its container's: a stop that is sent to all of
    /// those (a SIGSTOP to the process group) is not for it.
    fn pass(&self, event: Event) -> io::Result<()> {
        match event {
            Event::Signal(libc::SIGSTOP) | Event::Stop => resume(self.pid, RunTo::Event, 0),
            Event::Signal(_) => {
                // All signals that can be blocked are: the worker has faulted. Its container must
                // not get a core dump of it.
                kill(self.pid, Signal::SIGKILL)?;
                Ok(())
            }
            other => Err(io::Error::other(format!("unexpected stop: {other:?}"))),
        }
        .or_else(|error| match error.raw_os_error() {
            // The worker was killed meanwhile.
            Some(libc::ESRCH) => Ok(()),
            _ => Err(error),
        })
    }

    /// Looks after the worker until it has ended by itself.
    ///
    /// # Errors
    /// `TimedOut` if that takes longer than a few seconds; errors of [`Self::look_after`].
    pub fn wait(&mut self) -> io::Result<()> {
        let deadline = Deadline::soon();
        while self.look_after()? == Life::Goes {
            deadline.poll()?;
        }
        Ok(())
    }

    /// Ends the worker, whatever it is doing, and waits until the kernel has done so, however long
    /// that takes ([`Deadline::never`]): until then the worker may write to its owner's memory.
    pub fn end(mut self) -> io::Result<()> {
        self.finish()
    }

    fn finish(&mut self) -> io::Result<()> {
        while self.life == Life::Goes {
            let _ = kill(self.pid, Signal::SIGKILL);
            match next_event(self.pid, Deadline::never()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => self.life = Life::Ended,
                other => other.map(drop)?,
            }
        }
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}
