//! The registers of a stopped thread: how a system call is put into them, and how it is taken up again.

use std::io;

use nix::libc;
use nix::sys::ptrace;
use nix::unistd::Pid;

/// All general registers of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Registers(libc::user_regs_struct);

impl Registers {
    pub(super) fn read(thread: Pid) -> io::Result<Self> {
        Ok(Self(ptrace::getregs(thread)?))
    }

    pub(super) fn write(self, thread: Pid) -> io::Result<()> {
        Ok(ptrace::setregs(thread, self.0)?)
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::{GATE, STEP};

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use super::{Pid, Registers, io, libc};

    /// `syscall`.
    pub(in super::super) const GATE: &[u8] = &[0x0f, 0x05];
    /// Instructions begin anywhere.
    pub(in super::super) const STEP: usize = 1;
    /// The code segment of 64-bit programs.
    const USER64: u64 = 0x33;

    impl Default for Registers {
        fn default() -> Self {
            Self(libc::user_regs_struct {
                r15: 0,
                r14: 0,
                r13: 0,
                r12: 0,
                rbp: 0,
                rbx: 0,
                r11: 0,
                r10: 0,
                r9: 0,
                r8: 0,
                rax: 0,
                rcx: 0,
                rdx: 0,
                rsi: 0,
                rdi: 0,
                orig_rax: 0,
                rip: 0,
                cs: 0,
                eflags: 0,
                rsp: 0,
                ss: 0,
                fs_base: 0,
                gs_base: 0,
                ds: 0,
                es: 0,
                fs: 0,
                gs: 0,
            })
        }
    }

    impl Registers {
        pub(in super::super) fn are_native(&self) -> bool {
            self.0.cs == USER64
        }

        /// These, about to make a system call.
        pub(in super::super) fn calling(self, gate: u64, number: i64, arguments: &[u64]) -> Self {
            let argument = |index: usize| arguments.get(index).copied().unwrap_or(0);
            let mut registers = self.0;
            registers.rip = gate;
            registers.rax = number.cast_unsigned();
            // In no system call: nothing for the kernel to take up again.
            registers.orig_rax = u64::MAX;
            registers.rdi = argument(0);
            registers.rsi = argument(1);
            registers.rdx = argument(2);
            registers.r10 = argument(3);
            registers.r8 = argument(4);
            registers.r9 = argument(5);
            Self(registers)
        }

        /// These, to go on: a system call that the stop interrupted is made again, as the kernel does
        /// it on its way out (arch/x86/kernel/signal.c), which it no longer does after our calls.
        pub(in super::super) fn resuming(self) -> Self {
            let mut registers = self.0;
            if registers.orig_rax.cast_signed() >= 0 {
                match registers.rax.cast_signed() {
                    // ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND
                    -514..=-512 => registers.rax = registers.orig_rax,
                    // ERESTART_RESTARTBLOCK: the kernel kept what is left of the time to wait.
                    -516 => registers.rax = libc::SYS_restart_syscall.cast_unsigned(),
                    _ => return self,
                }
                registers.rip -= GATE.len() as u64;
                registers.orig_rax = u64::MAX;
            }
            Self(registers)
        }

        pub(in super::super) fn result(&self) -> i64 {
            self.0.rax.cast_signed()
        }

        pub(in super::super) fn stack_pointer(&self) -> u64 {
            self.0.rsp
        }

        pub(in super::super) fn thread_local_storage(&self, _: Pid) -> io::Result<u64> {
            Ok(self.0.fs_base)
        }
    }
}

#[cfg(target_arch = "aarch64")]
pub(super) use aarch64::{GATE, STEP};

#[cfg(target_arch = "aarch64")]
mod aarch64 {
    use super::{Pid, Registers, io, libc};

    /// `svc #0`.
    pub(in super::super) const GATE: &[u8] = &[0x01, 0x00, 0x00, 0xd4];
    /// Instructions are words.
    pub(in super::super) const STEP: usize = 4;
    /// The mode bit of 32-bit programs in the process state.
    const AARCH32: u64 = 1 << 4;

    impl Default for Registers {
        fn default() -> Self {
            Self(libc::user_regs_struct {
                regs: [0; 31],
                sp: 0,
                pc: 0,
                pstate: 0,
            })
        }
    }

    impl Registers {
        pub(in super::super) fn are_native(&self) -> bool {
            self.0.pstate & AARCH32 == 0
        }

        /// These, about to make a system call.
        pub(in super::super) fn calling(self, gate: u64, number: i64, arguments: &[u64]) -> Self {
            let mut registers = self.0;
            registers.pc = gate;
            registers.regs[8] = number.cast_unsigned();
            for (register, argument) in registers.regs.iter_mut().zip(arguments) {
                *register = *argument;
            }
            Self(registers)
        }

        /// These, to go on: the kernel has set an interrupted system call back before it told of the
        /// stop (arch/arm64/kernel/signal.c).
        pub(in super::super) fn resuming(self) -> Self {
            self
        }

        pub(in super::super) fn result(&self) -> i64 {
            self.0.regs[0].cast_signed()
        }

        pub(in super::super) fn stack_pointer(&self) -> u64 {
            self.0.sp
        }

        pub(in super::super) fn thread_local_storage(&self, thread: Pid) -> io::Result<u64> {
            crate::ffi::thread_local_storage(thread)
        }
    }
}
