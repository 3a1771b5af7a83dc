//! The frame of a signal (`struct rt_sigframe` in arch/x86/include/asm/sigframe.h), as far as
//! rt_sigreturn(2) reads it.

use crate::ffi::SignalMask;
use crate::registers::Registers;

/// The address of the code that ends a handler; a `struct ucontext`: flags, the next one, the
/// alternate stack, a `struct sigcontext`, the mask; and one word of padding.
const WORDS: usize = 40;
const FLAGS: usize = 1;
const STACK_FLAGS: usize = 4;
const REGISTERS: usize = 6;
const EXTENDED: usize = 29;
const MASK: usize = 38;
pub(super) const BYTES: u64 = WORDS as u64 * 8;
/// Where the first argument of a call is.
pub(super) const ARGUMENT: u64 = (REGISTERS as u64 + 8) * 8;

/// `UC_FP_XSTATE`, `UC_SIGCONTEXT_SS` and `UC_STRICT_RESTORE_SS` (asm/ucontext.h).
const ALL_THERE: u64 = 0x7;
/// Neither `SS_ONSTACK` nor `SS_DISABLE`: an alternate stack that the kernel does not take.
const NO_STACK: u64 = 4;

/// The state with which a thread goes on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) sigreturn: u64,
    pub(super) registers: Registers,
    pub(super) mask: SignalMask,
    /// The address of the extended registers. If it is 0, they are as for a new program.
    pub(super) extended: u64,
}

impl Frame {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut words = [0; WORDS];
        words[0] = self.sigreturn;
        words[FLAGS] = ALL_THERE;
        words[STACK_FLAGS] = NO_STACK;
        let registers = self.registers.in_frame();
        words[REGISTERS..][..registers.len()].copy_from_slice(&registers);
        words[EXTENDED] = self.extended;
        words[MASK] = self.mask;
        words.map(u64::to_ne_bytes).as_flattened().to_vec()
    }
}
