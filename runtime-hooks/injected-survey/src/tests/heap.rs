//! The C library of the tests: what a handle points to is allocated and freed through two slots.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ptr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Mutex, PoisonError};

use crate::board::Board;

/// How many bytes a handle points to (driver 580).
pub(super) const BYTES: u64 = 784;

/// The slots of the driver.
static SLOTS: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
/// What is allocated.
static LIVE: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

thread_local! {
    /// The board of the request that the thread works on.
    static BOARD: Cell<*const Board> = const { Cell::new(ptr::null()) };
}

fn live<T>(work: impl FnOnce(&mut BTreeSet<u64>) -> T) -> T {
    work(&mut LIVE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The addresses of the slots, which lead to the C library.
pub(super) fn slots() -> [u64; 2] {
    SLOTS[0].store(calloc as *const () as u64, SeqCst);
    SLOTS[1].store(free as *const () as u64, SeqCst);
    SLOTS.each_ref().map(|slot| ptr::from_ref(slot) as u64)
}

/// The code that slots may lead to: of the board of the calling thread.
pub(super) fn hooks() -> [u64; 2] {
    [
        calloc_hook as *const () as u64,
        free_hook as *const () as u64,
    ]
}

/// Whether the slots lead to the C library.
pub(super) fn is_as_it_was() -> bool {
    let functions = [calloc as *const () as u64, free as *const () as u64];
    SLOTS.each_ref().map(|slot| slot.load(SeqCst)) == functions
}

/// Makes the board the one of the thread, while `work` runs.
pub(super) fn with_board<T>(board: *const Board, work: impl FnOnce() -> T) -> T {
    BOARD.set(board);
    let worked = work();
    BOARD.set(ptr::null());
    worked
}

/// Allocates through the slot, as the driver does; before there is one, from the C library.
pub(super) fn new_handle() -> u64 {
    match SLOTS[0].load(SeqCst) {
        0 => calloc(1, BYTES),
        // SAFETY: the slot has a function of this type.
        slot => unsafe {
            std::mem::transmute::<u64, extern "C" fn(u64, u64) -> u64>(slot)(1, BYTES)
        },
    }
}

pub(super) fn free_handle(handle: u64) {
    match SLOTS[1].load(SeqCst) {
        0 => free(handle),
        // SAFETY: as above.
        slot => unsafe { std::mem::transmute::<u64, extern "C" fn(u64)>(slot)(handle) },
    }
}

/// Allocates as another build of the driver may.
pub(super) fn elsewhere() -> u64 {
    calloc(1, BYTES)
}

/// Whether memory is allocated.
pub(super) fn is_live(address: u64) -> bool {
    live(|all| all.contains(&address))
}

/// Number of allocations.
pub(super) fn count() -> usize {
    live(|all| all.len())
}

fn layout() -> Layout {
    Layout::from_size_align(1024, 16).unwrap()
}

extern "C" fn calloc(count: u64, each: u64) -> u64 {
    assert!(count * each <= 1024);
    // SAFETY: the layout has bytes.
    let made = unsafe { alloc_zeroed(layout()) } as u64;
    live(|all| all.insert(made));
    made
}

extern "C" fn free(address: u64) {
    assert!(live(|all| all.remove(&address)), "freed twice");
    // SAFETY: it was allocated with this layout.
    unsafe { dealloc(address as *mut u8, layout()) };
}

extern "C" fn calloc_hook(count: u64, each: u64) -> u64 {
    // SAFETY: the thread works on a request of this board.
    unsafe { (*BOARD.get()).hooks.calloc(count, each) }
}

extern "C" fn free_hook(address: u64) {
    // SAFETY: as above.
    unsafe { (*BOARD.get()).hooks.free(address) }
}
