//! The registers of a stopped thread: those for a system call of ours, and those with which an
//! interrupted system call of its own is made again.

use std::io;

use nix::libc;
use nix::sys::ptrace;
use nix::unistd::Pid;

/// `syscall`.
pub(crate) const GATE: &[u8] = &[0x0f, 0x05];
/// AUDIT_ARCH_X86_64 (linux/audit.h): calls by `int $0x80` have another one, and other numbers.
pub(crate) const ARCHITECTURE: u32 = 0xc000_003e;
/// The call that resumes an interrupted one, for the rest of its time.
const RESTART: u64 = libc::SYS_restart_syscall.cast_unsigned();
/// The code segment of 64-bit programs.
const USER64: u64 = 0x33;

/// All general registers of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Registers(libc::user_regs_struct);

/// Code that a thread or process is to execute.
#[derive(Debug, Clone, Copy)]
pub struct Start {
    /// Its first instruction.
    pub code: u64,
    /// Its stack pointer, as a function finds it.
    pub stack: u64,
    /// Its first argument.
    pub argument: u64,
}

/// The place where a thread makes a system call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gate {
    /// The address of a system call instruction.
    pub(crate) instruction: u64,
    /// The stack pointer during the call. Without a stack, at 0, a thread that is detached with our
    /// registers faults after the call instead of running on with registers that are not its own.
    pub(crate) stack: u64,
}

impl Registers {
    pub(crate) fn read(thread: Pid) -> io::Result<Self> {
        Ok(Self(ptrace::getregs(thread)?))
    }

    pub(crate) fn write(self, thread: Pid) -> io::Result<()> {
        Ok(ptrace::setregs(thread, self.0)?)
    }

    pub(crate) fn are_native(&self) -> bool {
        self.0.cs == USER64
    }

    /// Returns the registers for a system call. All other general registers are zero.
    pub(crate) fn calling(self, gate: Gate, number: i64, arguments: &[u64]) -> Self {
        let argument = |index: usize| arguments.get(index).copied().unwrap_or(0);
        Self(libc::user_regs_struct {
            rip: gate.instruction,
            rsp: gate.stack,
            rax: number.cast_unsigned(),
            // In no system call: the kernel has nothing to restart.
            orig_rax: u64::MAX,
            rdi: argument(0),
            rsi: argument(1),
            rdx: argument(2),
            r10: argument(3),
            r8: argument(4),
            r9: argument(5),
            rbx: 0,
            rbp: 0,
            rcx: 0,
            r11: 0,
            r12: 0,
            r13: 0,
            r14: 0,
            r15: 0,
            ..self.0
        })
    }

    /// Returns whether these are at the entry of the call that `calling` was about to make.
    pub(crate) fn are_entering(&self, calling: Self) -> bool {
        let (own, wanted) = (&self.0, &calling.0);
        let arguments =
            |of: &libc::user_regs_struct| [of.rdi, of.rsi, of.rdx, of.r10, of.r8, of.r9];
        own.orig_rax == wanted.rax
            && own.rip == wanted.rip + GATE.len() as u64
            && arguments(own) == arguments(wanted)
    }

    /// Has a thread that is about to make a system call make none.
    pub(crate) fn skip_call(thread: Pid) -> io::Result<()> {
        let mut registers = Self::read(thread)?;
        registers.0.orig_rax = u64::MAX;
        registers.write(thread)
    }

    /// Returns these, to resume: a system call that the stop interrupted is made again. The kernel
    /// does that on its way out (arch/x86/kernel/signal.c), but no longer after our calls.
    pub(crate) fn resuming(self) -> Self {
        let mut registers = self.0;
        if registers.orig_rax.cast_signed() >= 0 {
            match registers.rax.cast_signed() {
                // ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND
                -514..=-512 => {
                    registers.rax = registers.orig_rax;
                    registers.orig_rax = u64::MAX;
                }
                // ERESTART_RESTARTBLOCK: the kernel kept the time that is left to wait. `orig_rax`
                // keeps the call for `resuming_from_frame`; the kernel ignores it.
                -516 => registers.rax = RESTART,
                _ => return self,
            }
            registers.rip -= GATE.len() as u64;
        }
        Self(registers)
    }

    /// As [`Self::resuming`], out of a frame: the kernel then forgets the time that is left to
    /// wait, so the call waits for all of it again. A call that was interrupted before is no longer
    /// known: it ends with EINTR, as after a signal handler.
    pub(crate) fn resuming_from_frame(self) -> Self {
        let mut registers = self.resuming().0;
        if registers.rax == RESTART && registers.orig_rax.cast_signed() >= 0 {
            registers.rax = registers.orig_rax;
        }
        Self(registers)
    }

    /// Returns these, with another next instruction.
    pub(crate) fn going_to(self, instruction: u64) -> Self {
        Self(libc::user_regs_struct {
            rip: instruction,
            ..self.0
        })
    }

    /// Returns these in the order of `struct sigcontext` (asm/sigcontext.h), up to the segments,
    /// all of which are in the last word.
    pub(crate) fn in_frame(&self) -> [u64; 19] {
        let own = &self.0;
        let segments = own.cs | own.gs << 16 | own.fs << 32 | own.ss << 48;
        [
            own.r8, own.r9, own.r10, own.r11, own.r12, own.r13, own.r14, own.r15, own.rdi, own.rsi,
            own.rbp, own.rbx, own.rdx, own.rax, own.rcx, own.rsp, own.rip, own.eflags, segments,
        ]
    }

    /// Returns whether the thread waits in a system call that it can make again, from a frame as
    /// well: a call that was interrupted before is no longer known ([`RESTART`]).
    pub(crate) fn wait_in_a_call(&self) -> bool {
        let call = self.0.orig_rax;
        let is_interrupted = (-516..=-512).contains(&self.0.rax.cast_signed());
        call.cast_signed() >= 0 && call != RESTART && is_interrupted
    }

    /// Returns the registers for code that does not return to here, in the same thread: `fs_base`
    /// stays, by which its libraries know it.
    pub(crate) fn sent_to(self, start: Start) -> Self {
        let mut registers = self.starting(start.code, start.stack, start.argument).0;
        registers.fs_base = self.0.fs_base;
        Self(registers)
    }

    /// Returns the registers for code that never returns, with one argument.
    pub(crate) fn starting(self, code: u64, stack: u64, argument: u64) -> Self {
        /// Interrupts on, as always; strings go upwards, as code may expect (the thread's own bit
        /// depends on the code that was interrupted).
        const FLAGS: u64 = 0x202;
        let gate = Gate {
            instruction: code,
            stack,
        };
        let mut registers = self.calling(gate, 0, &[argument]).0;
        registers.eflags = FLAGS;
        registers.fs_base = 0;
        Self(registers)
    }

    /// Returns the address of the next instruction.
    pub(crate) fn instruction(&self) -> u64 {
        self.0.rip
    }

    pub(crate) fn result(&self) -> i64 {
        self.0.rax.cast_signed()
    }

    pub(crate) fn stack_pointer(&self) -> u64 {
        self.0.rsp
    }
}
