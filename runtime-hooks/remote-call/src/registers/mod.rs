//! The registers of a stopped thread: those for a system call of ours, and those with which an
//! interrupted system call of its own is made again.

use std::io;

use nix::libc;
use nix::sys::ptrace;
use nix::unistd::Pid;

/// All general registers of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Registers(libc::user_regs_struct);

/// Where a thread makes a system call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gate {
    /// The address of a system call instruction.
    pub(crate) instruction: u64,
    /// The stack pointer meanwhile. Without a stack, at 0, a thread that is let go with our
    /// registers faults behind the call instead of running on with what is not its own.
    pub(crate) stack: u64,
}

impl Registers {
    pub(crate) fn read(thread: Pid) -> io::Result<Self> {
        Ok(Self(ptrace::getregs(thread)?))
    }

    pub(crate) fn write(self, thread: Pid) -> io::Result<()> {
        Ok(ptrace::setregs(thread, self.0)?)
    }
}

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{ARCHITECTURE, GATE, STEP};

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::{ARCHITECTURE, GATE, STEP};
