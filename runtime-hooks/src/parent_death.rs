//! A child that does not outlive us.
#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{getpid, getppid};

/// Has the program that `command` starts killed when the calling thread ends (prctl(2)).
pub(crate) fn die_with_us(command: &mut Command) {
    let parent = getpid();
    // SAFETY: between fork and exec only two system calls are made, which are async-signal-safe; nothing is allocated.
    unsafe {
        command.pre_exec(move || {
            set_pdeathsig(Signal::SIGKILL)?;
            // We may have ended before that.
            if getppid() == parent {
                Ok(())
            } else {
                Err(io::ErrorKind::BrokenPipe.into())
            }
        });
    }
}
