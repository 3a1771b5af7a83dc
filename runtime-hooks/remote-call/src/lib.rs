//! System calls made by another process, for what a process alone can do to itself: to its memory
//! and to its descriptors.
//!
//! # How
//! A thread is stopped with ptrace(2). Its registers are set so that it makes one system call with
//! an instruction that its vDSO has anyway, so none of its code is changed, and then put back; an
//! interrupted system call of its own is made again. That thread makes only two calls:
//! clone(2), which makes a [`Proxy`], and wait4(2), which reaps it. The proxy makes all others,
//! also the clone(2) of a [`Worker`], which executes code that is in the process's memory.
//!
//! # If we are killed
//! * Before, between and after these two calls the thread has its own registers: it goes on.
//! * During one of the two, which do not wait, the kernel finishes the call, and the thread goes
//!   its return path (`return_path`): the call returns into a signal frame, out of which the kernel
//!   puts all registers and the signal mask back. A process that it has made ends, and is reaped.
//! * A thread for which there is no such frame (`return_path` says which) faults, since its
//!   registers for a call have no stack, and its process ends with SIGSEGV. It never runs on with
//!   registers that are not its own. The time for this is some 100 µs.
//! * The proxy dies with us, once the kernel has finished the call that it is in. Its parent, which
//!   gets no signal of that, keeps a zombie ([`reap`] is for whoever lives on).
//!
//! # What a process cannot do to us or with us
//! * *Use the time of a call to get past its seccomp filter*: the filter is suspended only between
//!   the entry and the exit of our call, where no code of the process runs.
//! * *Exchange the instruction, or pretend to be a vDSO*: at the entry the registers are compared
//!   with what we want, the mapping is known by its whole name, and what is read is bounded.
//! * *Keep us busy with signals*: all are blocked during a call, and a call with all that comes
//!   between has one deadline. If it passes, the thread is stopped and gets its registers back.
//! * *Lose a restartable sequence*: a thread that was stopped in one begins it again.
//!
//! The files, from the bottom: `ffi` and `registers` (of x86-64), `event` (stops),
//! `gate` (the instruction), `calls` (one call), `return_path`, `borrowed` (registers taken
//! and put back), `seized` (a running thread is stopped), `outside` (where threads are), `clone`
//! and `reaping`, `proxy`, `receive` (a file for a proxy), `worker`, `send` (a thread executes code
//! of its process, and goes back by itself).

#[cfg(not(target_arch = "x86_64"))]
compile_error!("registers and code are those of x86-64, and stasis was not tried elsewhere");

mod borrowed;
mod calls;
mod clone;
mod event;
mod ffi;
mod gate;
pub mod memory;
mod outside;
mod proxy;
mod reaping;
mod receive;
mod registers;
mod return_path;
mod seized;
mod send;
mod status;
mod worker;

pub use clone::Numbered;
pub use outside::wait_until_outside;
pub use proxy::{Proxy, Shared};
pub use reaping::reap;
pub use receive::SCRATCH_BYTES;
pub use registers::Start;
pub use send::{Errand, FRAME_BYTES, Sent, send, stack_pointer_of};
pub use worker::{Life, Worker};

#[cfg(test)]
mod tests;
