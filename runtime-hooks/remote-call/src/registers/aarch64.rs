//! Those of aarch64.

use super::{Gate, Pid, Registers, io, libc};

/// `svc #0`.
pub(crate) const GATE: &[u8] = &[0x01, 0x00, 0x00, 0xd4];
/// AUDIT_ARCH_AARCH64 (linux/audit.h).
pub(crate) const ARCHITECTURE: u32 = 0xc000_00b7;
/// Instructions are words.
pub(crate) const STEP: usize = 4;
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
    pub(crate) fn are_native(&self) -> bool {
        self.0.pstate & AARCH32 == 0
    }

    /// About to make a system call. All else is zero, the return address too.
    pub(crate) fn calling(self, gate: Gate, number: i64, arguments: &[u64]) -> Self {
        let mut registers = Self::default().0;
        registers.pstate = self.0.pstate;
        registers.pc = gate.instruction;
        registers.sp = gate.stack;
        for (register, argument) in registers.regs.iter_mut().zip(arguments) {
            *register = *argument;
        }
        registers.regs[8] = number.cast_unsigned();
        Self(registers)
    }

    /// Whether these are at the entry of the call that `calling` was about to make. The kernel
    /// marks an entry in register 7 (arch/arm64/kernel/ptrace.c).
    pub(crate) fn are_entering(&self, calling: Self) -> bool {
        let (own, wanted) = (&self.0, &calling.0);
        own.pc == wanted.pc + GATE.len() as u64
            && own.regs[..6] == wanted.regs[..6]
            && own.regs[8] == wanted.regs[8]
    }

    /// Has a thread that is about to make a system call make none.
    pub(crate) fn skip_call(thread: Pid) -> io::Result<()> {
        crate::ffi::skip_call(thread)
    }

    /// These, to go on: the kernel has set an interrupted system call back before it reported
    /// the stop (arch/arm64/kernel/signal.c).
    pub(crate) fn resuming(self) -> Self {
        self
    }

    /// About to execute code that never returns, with one argument.
    pub(crate) fn starting(self, code: u64, stack: u64, argument: u64) -> Self {
        let gate = Gate {
            instruction: code,
            stack,
        };
        self.calling(gate, 0, &[argument])
    }

    /// The address of its next instruction.
    pub(crate) fn instruction(&self) -> u64 {
        self.0.pc
    }

    pub(crate) fn result(&self) -> i64 {
        self.0.regs[0].cast_signed()
    }

    pub(crate) fn stack_pointer(&self) -> u64 {
        self.0.sp
    }
}
