//! The root of the code that is injected: its entry.
#![no_std]
#![allow(unsafe_code)] // an entry from nowhere
#![allow(dead_code, unused_imports)] // what only we use of the board

mod allocations;
mod board;
mod contexts;
mod driver;
mod drop_import;
mod errand;
mod export;
mod identify;
mod import;
mod mapping;
mod peers;
mod survey;
mod system;

use core::arch::naked_asm;
use core::mem::offset_of;

use board::Board;
use survey::survey;

/// A thread that was sent here has a board in `rdi` and a stack of ours. It has nothing to return
/// to: it goes back by its frame, which has all of its registers.
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn stasis_survey() {
    naked_asm!(
        "endbr64",
        "and rsp, -16",
        "mov rbx, rdi",
        "call {survey}",
        "mov rsp, [rbx + {frame}]",
        "mov eax, 15", // rt_sigreturn
        "syscall",
        "ud2",
        survey = sym survey,
        frame = const offset_of!(Board, request.frame),
    )
}
