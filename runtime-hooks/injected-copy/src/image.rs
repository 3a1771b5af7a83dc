//! The root of the code that is injected: its entries, and where its board is.
//!
//! Each entry begins with ENDBR64, since it is called through a pointer, and then jumps: it must
//! be the first instruction. The board is the symbol behind the code (`image.ld`), so its address
//! is a distance, and nothing has to be changed when the code is put anywhere.
#![no_std]
#![allow(unsafe_code)] // entries from foreign code
#![allow(dead_code)] // what only we use of the board

mod board;
mod bytes;
mod copy;
mod job;
mod mapping;
mod serve;
mod system;

use core::arch::{asm, naked_asm};

use board::Board;
use mapping::Call;

/// An entry, which jumps to a function of the same arguments.
macro_rules! entry {
    ($name:ident => $function:path) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        extern "C" fn $name() {
            naked_asm!("endbr64", "jmp {}", sym $function)
        }
    };
}

entry!(stasis_memcpy => memcpy);
entry!(stasis_mmap => mmap);

/// A helper begins with any stack pointer, and with nothing to return to.
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn stasis_helper() {
    naked_asm!("endbr64", "and rsp, -16", "call {}", sym helper)
}

unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
    // SAFETY: as the caller of memcpy promises.
    unsafe { copy::memcpy(board(), to, from, length) };
    to
}

unsafe extern "C" fn mmap(
    address: u64,
    length: u64,
    protection: i32,
    flags: i32,
    descriptor: i32,
    offset: i64,
) -> u64 {
    let call = Call {
        address,
        length,
        protection,
        flags,
        descriptor,
        offset,
    };
    // SAFETY: as the caller of mmap promises; the settings written at arming are true.
    unsafe { mapping::mmap(board(), call) }
}

extern "C" fn helper(index: usize) -> ! {
    serve::helper(board(), index)
}

fn board() -> &'static Board {
    let board: *const Board;
    // SAFETY: a distance is added, no memory is used. The pages behind the code hold a board.
    unsafe {
        asm!(
            "lea {}, [rip + stasis_board]",
            out(reg) board,
            options(pure, nomem, nostack, preserves_flags),
        );
        &*board
    }
}
