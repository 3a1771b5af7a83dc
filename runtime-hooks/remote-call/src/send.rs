//! Sends a thread to code in its process, from which it goes back by itself.
//!
//! For calls that must not be interrupted, such as those of a library that holds its locks: from
//! the moment at which the thread has the registers for it, no process traces it, and it does not
//! depend on whether we live. The code ends by rt_sigreturn(2) into a frame like that of a signal,
//! which was written before, with the whole state of the thread: registers of every kind, and the
//! signals that it blocks. Until then the thread blocks all.
//!
//! The frame and the stack are in memory of ours: the memory below the stack pointer of a thread
//! that is not its process's first need not be a stack (`return_path`).

use std::io;

use nix::unistd::Pid;

use crate::ffi::{SignalMask, has_shadow_stack, set_signals, signals};
use crate::registers::{Registers, Start};
use crate::return_path::CriticalSection;
use crate::return_path::lay_going_on;
use crate::seized::SeizedThread;

/// The code to which a thread is sent.
#[derive(Debug, Clone, Copy)]
pub struct Errand {
    /// The code that the thread executes, which ends by rt_sigreturn(2).
    pub start: Start,
    /// The address of its frame: [`FRAME_BYTES`] that no other code uses.
    pub frame: u64,
}

/// The most that a frame takes: the registers of all extensions have 11 KiB.
pub const FRAME_BYTES: u64 = 32 << 10;

/// Whether a thread could be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// The thread is on its way.
    Gone,
    /// The thread was busy, and was resumed: only one that waits in a system call is sent.
    Busy,
}

/// Sends a thread of a process. Calls `is_gone` as [`crate::Proxy::of_running`] does.
///
/// # Errors
/// Errors of ptrace(2) (EPERM: the process has a tracer already) and `/proc`; a thread with a
/// shadow stack, or of a 32-bit program. The thread goes on then.
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
    // A thread in a call is in no restartable sequence, and half way through nothing.
    if !found.wait_in_a_call() || CriticalSection::of(thread)?.is_some() {
        return Ok(Sent::Busy);
    }
    let mask = signals(thread)?;
    lay_going_on(thread, errand.frame, found, mask)?;
    found.sent_to(errand.start).write(thread)?;
    // After the registers: the thread must not go on by itself with all signals blocked.
    set_signals(thread, SignalMask::MAX)?;
    drop(seized);
    Ok(Sent::Gone)
}

/// Returns the stack pointer with which rt_sigreturn(2) finds the frame at this place.
#[must_use]
pub fn stack_pointer_of(frame: u64) -> u64 {
    // A handler's return has popped the address at the start of the frame.
    frame + 8
}
