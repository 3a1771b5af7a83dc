//! The root of the code that is injected: its entries, and where its board is.
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
mod hooks;
mod identify;
mod import;
mod mapping;
mod peers;
mod survey;
mod system;

use core::arch::{asm, naked_asm};
use core::mem::offset_of;

use board::Board;
use hooks::Hooks;
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

/// An entry for libcuda, which jumps to a function of the same arguments.
macro_rules! entry {
    ($name:ident => $function:path) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        extern "C" fn $name() {
            naked_asm!("endbr64", "jmp {}", sym $function)
        }
    };
}

entry!(stasis_calloc => calloc);
entry!(stasis_free => free);

unsafe extern "C" fn calloc(count: u64, each: u64) -> u64 {
    // SAFETY: a slot has led here.
    unsafe { hooks().calloc(count, each) }
}

unsafe extern "C" fn free(address: u64) {
    // SAFETY: as above.
    unsafe { hooks().free(address) }
}

/// The board is the symbol behind the code (`image.ld`), so its address is a distance.
fn hooks() -> &'static Hooks {
    let board: *const Board;
    // SAFETY: a distance is added, no memory is used. The pages behind the code hold a board.
    unsafe {
        asm!(
            "lea {}, [rip + stasis_board]",
            out(reg) board,
            options(pure, nomem, nostack, preserves_flags),
        );
        &*core::ptr::addr_of!((*board).hooks)
    }
}
