//! How a thread that makes a call for us returns to its work by itself if we are killed.
//!
//! The call returns (`code`) into frames below the thread's stack pointer (`place`), like those
//! that the kernel writes before it calls a signal handler, and rt_sigreturn(2) makes it put all
//! registers of such a frame back, with the signals that the thread blocks: the general ones
//! (`frame`) and all others (`extended`). We do the same ourselves as long as we live, and then
//! the memory is as it was, too.
//!
//! # What the frames do
//! * The thread first waits for the process that it has just made, and reaps it; clone(2) writes
//!   its number into this frame. If it has made none, no process has that number, and it does not
//!   wait.
//! * Then it goes on where it was. An interrupted call is made again. A restartable sequence that
//!   it was in is left as the kernel would leave it. Its alternate stack stays: the frame's is an
//!   invalid one, which the kernel passes over (`restore_altstack` in kernel/signal.c).
//! * The new process has a frame of its own, and ends with it. It has the same memory, and would
//!   use these frames while the thread is already using the memory below its stack pointer: the
//!   thread waits for its end, and as long as we live the frames stay until we hold it
//!   ([`crate::clone`]).
//!
//! # When there is none
//! A thread without a return path faults, as long as it has our registers: one that does not run on
//! the first stack of its process, since the memory below its stack pointer may be in use (Go has
//! small stacks in its heap); one whose stack is almost full; one with a shadow stack, where such a
//! return is a fault; a program without the two pieces of code.
//!
//! A thread that CRIU traces without PTRACE_O_TRACESYSGOOD (one without a seccomp filter) gets
//! SIGTRAP from the kernel if CRIU is killed just while it stands at the entry or the exit of a
//! call, and ends of that.
//!
//! The memory below the stack pointer is free: a signal handler can use it at any time. A handler
//! that runs on an alternate stack is no exception, unless that stack is a local variable of a
//! function further up, and has less room left than the frames need.

mod code;
mod extended;
mod frame;
mod frames;
mod place;
mod rseq;

pub(crate) use frames::{ReturnPath, lay_going_on};
pub(crate) use rseq::CriticalSection;

/// The arguments of clone(2) by which the new process finds its frame, and its parent the process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChildFrame {
    /// The new process's stack pointer.
    pub(crate) stack: u64,
    /// The address where the parent expects its number.
    pub(crate) number: u64,
}
