//! clone(2) of processes that share memory with the process that they are children of.

use std::io;

use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::borrowed::BorrowedThread;
use crate::event::{Deadline, Event, next_event};
use crate::memory;
use crate::return_path::ChildFrame;
use crate::status::traced_child;

/// The addresses in the shared memory where the kernel writes the number of a new process in its
/// parent's pid namespace, 4 bytes each.
#[derive(Debug, Clone, Copy)]
pub struct Numbered {
    /// Written before the process is visible, or before its parent, which would reap it on its way
    /// back, has its own registers again; never cleared. With it the process can be found and
    /// reaped whenever we are killed.
    pub listed: u64,
    /// Written before its first instruction, and cleared by the kernel when the process has ended,
    /// in whatever way (`CLONE_CHILD_CLEARTID`); aligned. Until then it may still change memory.
    pub cleared_at_end: Option<u64>,
}

/// A new process, and its number in its parent's pid namespace.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) own: Pid,
    pub(crate) inside: u64,
}

/// Has a thread make a stopped process that ends when we do, and gives the thread its own registers
/// back.
///
/// # Errors
/// Errors of clone(2), ptrace(2) and `/proc`.
pub(crate) fn make(
    mut thread: BorrowedThread,
    more: i32,
    numbered: Option<Numbered>,
) -> io::Result<Made> {
    let owner = thread.thread();
    let made = |inside| {
        let own = Pid::from_raw(traced_child(owner.as_raw(), inside)?);
        Ok(Made { own, inside })
    };
    let Some(frame) = thread.child_frame() else {
        // Each moment counts, and the new process is without a stack, as the thread is.
        let inside = thread.call(libc::SYS_clone, &arguments(more, numbered, None))?;
        drop(thread);
        let made = made(inside)?;
        hold(made.own)?;
        return Ok(made);
    };
    let made = match thread.call(libc::SYS_clone, &arguments(more, numbered, Some(frame))) {
        Ok(inside) => made(inside),
        // After any other error no process was made.
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(error),
        Err(error) => return Err(error),
    };
    match made {
        Ok(made) => {
            hold(made.own)?;
            list(owner, &made, numbered)?;
            Ok(made)
        }
        // There may be a process that we do not hold, and that has nothing but its frame.
        Err(error) => {
            thread.leave_to_itself();
            Err(error)
        }
    }
}

/// Writes the number of the process where the kernel has not.
fn list(owner: Pid, made: &Made, numbered: Option<Numbered>) -> io::Result<()> {
    let Some(numbered) = numbered else {
        return Ok(());
    };
    let number = u32::try_from(made.inside).map_err(io::Error::other)?;
    memory::write(owner.as_raw(), numbered.listed, &number.to_ne_bytes())
        .inspect_err(|_| end(made.own))
}

/// Waits until a new process has stopped before its first instruction, and has it end when we do.
/// Kills it if that fails.
fn hold(own: Pid) -> io::Result<()> {
    let options = Options::PTRACE_O_EXITKILL | Options::PTRACE_O_TRACESYSGOOD;
    let held = match next_event(own, Deadline::soon()) {
        Ok(Event::Stop) => ptrace::setoptions(own, options).map_err(io::Error::from),
        Ok(other) => Err(io::Error::other(format!("unexpected stop: {other:?}"))),
        Err(error) => Err(error),
    };
    held.inspect_err(|_| end(own))
}

/// Kills a process that has not come to its first instruction, and does not.
fn end(own: Pid) {
    let _ = kill(own, Signal::SIGKILL);
}

/// Returns the arguments of a clone(2) that shares memory and `more`. The new process is traced as
/// the caller is. Its parent gets no signal at its end: the lowest byte has none. With a frame the
/// number goes there instead of to the list.
pub(crate) fn arguments(
    more: i32,
    numbered: Option<Numbered>,
    frame: Option<ChildFrame>,
) -> [u64; 5] {
    let mut flags = libc::CLONE_VM | libc::CLONE_PTRACE | more;
    let listed = numbered.map(|numbered| numbered.listed);
    let listed = frame.map(|frame| frame.number).or(listed);
    let cleared = numbered.and_then(|numbered| numbered.cleared_at_end);
    if listed.is_some() {
        flags |= libc::CLONE_PARENT_SETTID;
    }
    if cleared.is_some() {
        flags |= libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID;
    }
    let flags = flags.unsigned_abs().into();
    let stack = frame.map_or(0, |frame| frame.stack);
    let (listed, cleared) = (listed.unwrap_or(0), cleared.unwrap_or(0));
    [flags, stack, listed, cleared, 0]
}
