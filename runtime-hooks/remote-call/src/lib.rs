//! System calls made by a thread of another process, which is stopped for them.
//!
//! For what a process alone can do to itself: its descriptors and its mappings. The thread is stopped by ptrace(2), made to go through
//! a system call instruction that its vDSO has anyway, so nothing of its code is changed, and goes on where it was, with
//! whatever system call it was in taken up again. [`RemoteThread`] stops a thread that runs; [`TracedThread`] is one that we
//! trace and that is stopped already, and stays so; a [`MemoryProxy`] is for calls on its memory that take long.

mod ffi;
mod proxy;
mod registers;
mod traced;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

pub use proxy::{MemoryProxy, ProxyRemains};
use registers::Registers;
pub use traced::TracedThread;

/// A thread that is in the kernel for longer cannot be stopped now.
const PATIENCE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_micros(100);
/// `PTRACE_EVENT_STOP` (ptrace(2)): how a seized thread says that it has stopped.
const EVENT_STOP: i32 = 128;

/// A thread of another process that makes system calls for us; it goes on when this is dropped.
#[derive(Debug)]
pub struct RemoteThread {
    thread: Pid,
    /// The address of a system call instruction.
    gate: u64,
    /// Where the thread was.
    found: Registers,
}

impl RemoteThread {
    /// Stops a thread of the process with this pid. `is_gone` is asked once the thread is ours, since the pid may have become a
    /// stranger's before that.
    ///
    /// # Errors
    /// The kernel's: a process that is being debugged has one tracer already (EPERM). It goes on then.
    pub fn stop(pid: i32, is_gone: impl FnOnce() -> bool) -> io::Result<Self> {
        let gate = gate(pid)?;
        let thread = live_thread(pid)?;
        seize(thread)?;
        let mut remote = Self {
            thread,
            gate,
            found: Registers::default(),
        };
        if is_gone() {
            return Err(io::ErrorKind::NotFound.into());
        }
        remote.interrupt()?;
        if !remote.found.are_native() {
            return Err(io::Error::other("it is a 32-bit program"));
        }
        Ok(remote)
    }

    /// Has the thread make one system call, which must be one that does not wait.
    ///
    /// # Errors
    /// What the call said, or ptrace.
    pub fn call(&mut self, number: libc::c_long, arguments: &[u64]) -> io::Result<u64> {
        loop {
            let calling = self.found.calling(self.gate, number, arguments);
            calling.write(self.thread)?;
            ptrace::syscall(self.thread, None)?;
            match self.wait()? {
                WaitStatus::PtraceSyscall(_) => break,
                // It is stopped by a signal, too, and says so once more before it runs for us.
                WaitStatus::PtraceEvent(_, _, EVENT_STOP) => {}
                // A signal came first: it is delivered as if we were not here, and then it is our turn.
                WaitStatus::Stopped(_, signal) => {
                    self.found.resuming().write(self.thread)?;
                    ptrace::cont(self.thread, signal)?;
                    self.interrupt()?;
                }
                other => return Err(unexpected(other)),
            }
        }
        ptrace::syscall(self.thread, None)?;
        match self.wait()? {
            WaitStatus::PtraceSyscall(_) => {}
            other => return Err(unexpected(other)),
        }
        let result = Registers::read(self.thread)?.result();
        match i32::try_from(result) {
            Ok(error @ -4095..=-1) => Err(io::Error::from_raw_os_error(-error)),
            _ => Ok(result.cast_unsigned()),
        }
    }

    /// Stops the thread and remembers where it is. Signals that come before that are delivered.
    fn interrupt(&mut self) -> io::Result<()> {
        ptrace::interrupt(self.thread)?;
        loop {
            match self.wait()? {
                WaitStatus::PtraceEvent(_, _, EVENT_STOP) => break,
                WaitStatus::Stopped(_, signal) => ptrace::cont(self.thread, signal)?,
                WaitStatus::PtraceEvent(..) | WaitStatus::PtraceSyscall(_) => {
                    ptrace::cont(self.thread, None)?;
                }
                other => return Err(unexpected(other)),
            }
        }
        self.found = Registers::read(self.thread)?;
        Ok(())
    }

    fn wait(&self) -> io::Result<WaitStatus> {
        let deadline = Instant::now() + PATIENCE;
        // Tracees are waited for by whoever traces them, children or not; `__WALL`: threads, too.
        let flags = WaitPidFlag::__WALL | WaitPidFlag::WNOHANG;
        loop {
            match waitpid(self.thread, Some(flags))? {
                WaitStatus::StillAlive if Instant::now() < deadline => sleep(POLL),
                WaitStatus::StillAlive => return Err(io::ErrorKind::TimedOut.into()),
                status => return Ok(status),
            }
        }
    }
}

impl Drop for RemoteThread {
    fn drop(&mut self) {
        // Without registers the thread was never stopped. A thread that has ended needs neither.
        if self.found != Registers::default() {
            let _ = self.found.resuming().write(self.thread);
        }
        let _ = ptrace::detach(self.thread, None);
    }
}

/// Where a thread that we trace has its stack and its thread-local storage.
///
/// # Errors
/// What ptrace said.
pub fn spots(thread: i32) -> io::Result<[u64; 2]> {
    let thread = Pid::from_raw(thread);
    let registers = Registers::read(thread)?;
    Ok([
        registers.stack_pointer(),
        registers.thread_local_storage(thread)?,
    ])
}

/// With seccomp's rules suspended: they are for what the program does, not for what we do.
fn seize(thread: Pid) -> io::Result<()> {
    let options = ptrace::Options::PTRACE_O_TRACESYSGOOD;
    let suspending = ptrace::Options::from_bits_retain(libc::PTRACE_O_SUSPEND_SECCOMP);
    match ptrace::seize(thread, options | suspending) {
        // Not ours to suspend, or a kernel without it: the call itself will say if it is refused.
        Err(Errno::EPERM | Errno::EINVAL) => Ok(ptrace::seize(thread, options)?),
        other => Ok(other?),
    }
}

/// Any thread will do; the leader may have ended while others go on.
fn live_thread(pid: i32) -> io::Result<Pid> {
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = entry?.path();
        let Some(thread) = path
            .file_name()
            .and_then(|name| name.to_str()?.parse().ok())
        else {
            continue;
        };
        let stat = fs::read_to_string(path.join("stat")).unwrap_or_default();
        let state = stat
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.chars().next());
        if !matches!(state, None | Some('Z' | 'X')) {
            return Ok(Pid::from_raw(thread));
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

/// A system call instruction: every vDSO has one, for calls that it cannot answer itself.
fn gate(pid: i32) -> io::Result<u64> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"));
    let range = line.and_then(|line| line.split_once(' ')?.0.split_once('-'));
    let parse = |text| u64::from_str_radix(text, 16).ok();
    let Some((start, end)) = range.and_then(|(start, end)| Some((parse(start)?, parse(end)?)))
    else {
        return Err(io::Error::other("it has no vDSO"));
    };
    let mut code = vec![0; usize::try_from(end - start).map_err(io::Error::other)?];
    File::open(format!("/proc/{pid}/mem"))?.read_exact_at(&mut code, start)?;
    let steps = code.windows(registers::GATE.len());
    let found = steps
        .step_by(registers::STEP)
        .position(|step| step == registers::GATE);
    let offset = found.ok_or_else(|| io::Error::other("its vDSO has no system call"))?;
    Ok(start + (offset * registers::STEP) as u64)
}

fn unexpected(status: WaitStatus) -> io::Error {
    match status {
        WaitStatus::Exited(..) | WaitStatus::Signaled(..) => io::ErrorKind::NotFound.into(),
        other => io::Error::other(format!("ptrace reports {other:?}")),
    }
}

#[cfg(test)]
mod tests;
