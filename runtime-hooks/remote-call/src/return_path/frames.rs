//! All frames of a return path.

use std::io;

use nix::libc;
use nix::unistd::Pid;

use super::ChildFrame;
use super::code::Code;
use super::extended::Extended;
use super::frame::{ARGUMENT, BYTES, Frame};
use super::place::{ALIGNMENT, Places};
use crate::ffi::{SignalMask, has_shadow_stack};
use crate::memory;
use crate::registers::{Gate, Registers};
use crate::return_path::CriticalSection;

/// From the bottom: the frames by which the new process ends, the thread waits, and it goes on.
const CHILD: u64 = 0;
const WAITING: u64 = BYTES;
const GOING_ON: u64 = 2 * BYTES;
const EXTENDED: u64 = 3 * BYTES;
const _: () = assert!(EXTENDED.is_multiple_of(ALIGNMENT));
/// No process has this number (`PID_MAX_LIMIT` in linux/threads.h).
const NOBODY: u64 = 0x7fff_ffff;

/// Frames in the memory of a stopped thread.
#[derive(Debug)]
pub(crate) struct ReturnPath {
    thread: Pid,
    code: Code,
    start: u64,
    /// The earlier contents of that memory.
    before: Vec<u8>,
}

impl ReturnPath {
    /// Writes the frames for a thread that goes on with these registers and this mask; `None` where
    /// that fails.
    pub(crate) fn lay(
        thread: Pid,
        found: Registers,
        mask: SignalMask,
        section: Option<&CriticalSection>,
    ) -> Option<Self> {
        if has_shadow_stack(thread) {
            return None;
        }
        Self::try_lay(thread, found, mask, section).ok().flatten()
    }

    fn try_lay(
        thread: Pid,
        found: Registers,
        mask: SignalMask,
        section: Option<&CriticalSection>,
    ) -> io::Result<Option<Self>> {
        let Some(places) = Places::of(thread, found.stack_pointer())? else {
            return Ok(None);
        };
        let extended = Extended::of(thread)?;
        let room = EXTENDED + extended.room;
        let Some(start) = places.below(found.stack_pointer(), room) else {
            return Ok(None);
        };
        let instruction = match section {
            Some(section) => section.leave(thread, found.instruction())?,
            None => found.instruction(),
        };
        let going_on = found.going_to(instruction).resuming_from_frame();
        let bytes = frames(start, places.code, going_on, mask, &extended);
        let mut before = vec![0; bytes.len()];
        memory::read(thread.as_raw(), start, &mut before)?;
        let return_path = Self {
            thread,
            code: places.code,
            start,
            before,
        };
        if memory::write(thread.as_raw(), start, &bytes).is_err() {
            return_path.clear()?;
            return Ok(None);
        }
        Ok(Some(return_path))
    }

    /// Returns the place where the thread makes its calls.
    pub(crate) fn gate(&self) -> Gate {
        Gate {
            instruction: self.code.call,
            stack: self.start + WAITING,
        }
    }

    /// Returns the registers with which the thread goes back.
    pub(crate) fn returning(&self, found: Registers) -> Registers {
        let gate = Gate {
            instruction: self.code.sigreturn,
            // A handler's return has popped the address at the start of the frame.
            stack: self.start + GOING_ON + 8,
        };
        found.calling(gate, libc::SYS_rt_sigreturn, &[])
    }

    pub(crate) fn of_child(&self) -> ChildFrame {
        ChildFrame {
            stack: self.start + CHILD,
            number: self.start + WAITING + ARGUMENT,
        }
    }

    /// Puts the earlier contents back. The thread must have its own registers again, and its new
    /// process must not go on by itself any more.
    pub(crate) fn clear(&self) -> io::Result<()> {
        memory::write(self.thread.as_raw(), self.start, &self.before)
    }
}

/// Writes the last frame alone, for a thread that comes to it by itself: the thread goes on with
/// these registers and this mask.
///
/// # Errors
/// Errors of ptrace(2) and process_vm_writev(2).
pub(crate) fn lay_going_on(
    thread: Pid,
    start: u64,
    found: Registers,
    mask: SignalMask,
) -> io::Result<()> {
    let extended = Extended::of(thread)?;
    let place = (start + BYTES).next_multiple_of(ALIGNMENT);
    let frame = Frame {
        sigreturn: 0,
        registers: found.resuming_from_frame(),
        mask,
        extended: place,
    };
    memory::write(thread.as_raw(), start, &frame.bytes())?;
    memory::write(thread.as_raw(), place, &extended.bytes)
}

fn frames(
    start: u64,
    code: Code,
    going_on: Registers,
    mask: SignalMask,
    extended: &Extended,
) -> Vec<u8> {
    let gate = |frame: u64| Gate {
        instruction: code.call,
        stack: start + frame,
    };
    let clone_child = libc::__WCLONE.cast_unsigned().into();
    let waiting = going_on.calling(
        gate(GOING_ON),
        libc::SYS_wait4,
        &[NOBODY, 0, clone_child, 0],
    );
    let ending = going_on.calling(gate(CHILD), libc::SYS_exit, &[0]);
    let frame = |registers, mask, extended| Frame {
        sigreturn: code.sigreturn,
        registers,
        mask,
        extended,
    };
    // In the order of their places.
    let frames = [
        frame(ending, SignalMask::MAX, 0),
        frame(waiting, SignalMask::MAX, 0),
        frame(going_on, mask, start + EXTENDED),
    ];
    let mut bytes = frames.map(|frame| frame.bytes()).concat();
    bytes.extend(&extended.bytes);
    bytes
}
