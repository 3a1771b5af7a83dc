//! A second process of CRIU's program.

#![allow(unsafe_code)] // FFI: fork(2) and _exit(2)

use std::io;

use nix::libc;
use nix::unistd::{ForkResult, fork as fork_process};

/// Forks. Must be called before we start any thread: CRIU itself has but one.
pub(crate) fn fork() -> io::Result<ForkResult> {
    // SAFETY: with a single thread the child has all that the parent has, locks included.
    Ok(unsafe { fork_process() }?)
}

/// Ends a forked process without what CRIU does at its end.
pub(crate) fn end_process() -> ! {
    // SAFETY: it ends the process and touches nothing of it.
    unsafe { libc::_exit(0) }
}
