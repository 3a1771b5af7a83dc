//! The registers of a stopped thread: those for a system call of ours, and those with which an
//! interrupted system call of its own is made again.

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
pub(super) use x86_64::{ARCHITECTURE, GATE, STEP};

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use super::{Pid, Registers, io, libc};

    /// `syscall`.
    pub(in super::super) const GATE: &[u8] = &[0x0f, 0x05];
    /// AUDIT_ARCH_X86_64 (linux/audit.h): not that of `int $0x80`, whose calls have other numbers.
    pub(in super::super) const ARCHITECTURE: u32 = 0xc000_003e;
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

        /// About to make a system call. All else is zero, the stack pointer too: if our process
        /// is killed now, the thread faults behind the call instead of running on with registers
        /// that are not its own.
        pub(in super::super) fn calling(self, gate: u64, number: i64, arguments: &[u64]) -> Self {
            let argument = |index: usize| arguments.get(index).copied().unwrap_or(0);
            Self(libc::user_regs_struct {
                rip: gate,
                rax: number.cast_unsigned(),
                // In no system call: nothing for the kernel to take up again.
                orig_rax: u64::MAX,
                rdi: argument(0),
                rsi: argument(1),
                rdx: argument(2),
                r10: argument(3),
                r8: argument(4),
                r9: argument(5),
                cs: self.0.cs,
                ss: self.0.ss,
                ds: self.0.ds,
                es: self.0.es,
                fs: self.0.fs,
                gs: self.0.gs,
                fs_base: self.0.fs_base,
                gs_base: self.0.gs_base,
                eflags: self.0.eflags,
                ..Self::default().0
            })
        }

        /// Whether these are at the entry of the call that `calling` was about to make.
        pub(in super::super) fn are_entering(&self, calling: Self) -> bool {
            let (own, wanted) = (&self.0, &calling.0);
            let arguments =
                |of: &libc::user_regs_struct| [of.rdi, of.rsi, of.rdx, of.r10, of.r8, of.r9];
            own.orig_rax == wanted.rax
                && own.rip == wanted.rip + GATE.len() as u64
                && arguments(own) == arguments(wanted)
        }

        /// Has a thread that is about to make a system call make none.
        pub(in super::super) fn skip_call(thread: Pid) -> io::Result<()> {
            let mut registers = Self::read(thread)?;
            registers.0.orig_rax = u64::MAX;
            registers.write(thread)
        }

        /// These, to go on: a system call that the stop interrupted is made again. The kernel does
        /// that on its way out (arch/x86/kernel/signal.c), but no longer after our calls.
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

        /// About to execute code that never returns, with one argument.
        pub(in super::super) fn starting(self, code: u64, stack: u64, argument: u64) -> Self {
            /// Interrupts on, as always; strings go upwards, as code may expect (the bit that the
            /// thread had comes from whatever it was doing).
            const FLAGS: u64 = 0x202;
            let mut registers = self.calling(code, 0, &[argument]).0;
            registers.rsp = stack;
            registers.eflags = FLAGS;
            registers.fs_base = 0;
            Self(registers)
        }

        /// The address of its next instruction.
        pub(in super::super) fn instruction(&self) -> u64 {
            self.0.rip
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
pub(super) use aarch64::{ARCHITECTURE, GATE, STEP};

#[cfg(target_arch = "aarch64")]
mod aarch64 {
    use super::{Pid, Registers, io, libc};

    /// `svc #0`.
    pub(in super::super) const GATE: &[u8] = &[0x01, 0x00, 0x00, 0xd4];
    /// AUDIT_ARCH_AARCH64 (linux/audit.h).
    pub(in super::super) const ARCHITECTURE: u32 = 0xc000_00b7;
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

        /// About to make a system call. All else is zero, the stack pointer and the return address
        /// too: if our process is killed now, the thread faults behind the call instead of running
        /// on with registers that are not its own.
        pub(in super::super) fn calling(self, gate: u64, number: i64, arguments: &[u64]) -> Self {
            let mut registers = Self::default().0;
            registers.pstate = self.0.pstate;
            registers.pc = gate;
            for (register, argument) in registers.regs.iter_mut().zip(arguments) {
                *register = *argument;
            }
            registers.regs[8] = number.cast_unsigned();
            Self(registers)
        }

        /// Whether these are at the entry of the call that `calling` was about to make. The kernel
        /// marks an entry in register 7 (arch/arm64/kernel/ptrace.c).
        pub(in super::super) fn are_entering(&self, calling: Self) -> bool {
            let (own, wanted) = (&self.0, &calling.0);
            own.pc == wanted.pc + GATE.len() as u64
                && own.regs[..6] == wanted.regs[..6]
                && own.regs[8] == wanted.regs[8]
        }

        /// Has a thread that is about to make a system call make none.
        pub(in super::super) fn skip_call(thread: Pid) -> io::Result<()> {
            crate::ffi::skip_call(thread)
        }

        /// These, to go on: the kernel has set an interrupted system call back before it reported
        /// the stop (arch/arm64/kernel/signal.c).
        pub(in super::super) fn resuming(self) -> Self {
            self
        }

        /// About to execute code that never returns, with one argument.
        pub(in super::super) fn starting(self, code: u64, stack: u64, argument: u64) -> Self {
            let mut registers = self.calling(code, 0, &[argument]).0;
            registers.sp = stack;
            Self(registers)
        }

        /// The address of its next instruction.
        pub(in super::super) fn instruction(&self) -> u64 {
            self.0.pc
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
