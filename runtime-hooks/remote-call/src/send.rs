//! A thread is sent to code that is in its process, and goes back by itself.
//!
//! For calls that nobody may interrupt, such as those of a library that holds its locks: from the
//! moment at which the thread has the registers for it, it is traced by nobody, and whether we live
//! makes no difference to it. The code ends by rt_sigreturn(2) into a frame like that of a signal,
//! which has been laid before, with all that the thread has been: registers of every kind, and the
//! signals that it blocks. Until then it blocks all.
//!
//! The frame is in memory of ours, and so is the stack: what is below the stack pointer of a thread
//! that is not its process's first need not be a stack (`way_back`).

use std::io;

use nix::unistd::Pid;

use crate::ffi::{SignalMask, has_shadow_stack, set_signals, signals};
use crate::registers::{Registers, Start};
use crate::seized::SeizedThread;
use crate::way_back::CriticalSection;
use crate::way_back::lay_going_on;

/// Where a thread is sent.
#[derive(Debug, Clone, Copy)]
pub struct Errand {
    /// What it does there: code that ends by rt_sigreturn(2).
    pub start: Start,
    /// Where its frame is laid: [`FRAME_BYTES`] that nobody else uses.
    pub frame: u64,
}

/// The most that a frame takes: the registers of all extensions have 11 KiB.
pub const FRAME_BYTES: u64 = 32 << 10;

/// Whether a thread could be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// It is on its way.
    Gone,
    /// It is doing something, and was let go on: only one that waits in a system call is sent.
    Busy,
}

/// Sends a thread of a process. `is_gone` is asked as in [`crate::Proxy::of_running`].
///
/// # Errors
/// Those of ptrace(2) (EPERM: the process has a tracer already) and `/proc`; a thread with a shadow
/// stack, or of a 32-bit program. It goes on then.
pub fn send(
    pid: i32,
    thread: i32,
    errand: Errand,
    is_gone: impl FnOnce() -> bool,
) -> io::Result<Sent> {
    let thread = Pid::from_raw(thread);
    let seized = SeizedThread::stop_thread(pid, thread, is_gone)?;
    let found = Registers::read(thread)?;
    if !found.are_native() || has_shadow_stack(thread) {
        return Err(io::Error::other(
            "it is a 32-bit program, or has a shadow stack",
        ));
    }
    // In a call there is no restartable sequence, and no half of anything.
    if !found.wait_in_a_call() || CriticalSection::of(thread)?.is_some() {
        return Ok(Sent::Busy);
    }
    let mask = signals(thread)?;
    lay_going_on(thread, errand.frame, found, mask)?;
    found.sent_to(errand.start).write(thread)?;
    // Behind the registers: a thread that blocks all signals must not go on so.
    set_signals(thread, SignalMask::MAX)?;
    drop(seized);
    Ok(Sent::Gone)
}

/// The stack pointer with which rt_sigreturn(2) finds the frame at this place.
#[must_use]
pub fn stack_pointer_of(frame: u64) -> u64 {
    // The address in front of it is popped by a handler's return.
    frame + 8
}
