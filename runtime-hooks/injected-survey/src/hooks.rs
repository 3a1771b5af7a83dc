//! Handles keep their values, which programs may have kept: torch's symmetric memory has.
//!
//! The value of a handle is the address of what libcuda has allocated for it by calloc(3), and
//! frees by free(3) with the last reference (driver 580.159, H200). It calls both through slots of
//! its own. For the time of a request these lead here: what the handle of a dropped import points
//! to is not freed, so nothing else gets its address, and calloc returns it when the import is made
//! again. That holds for the checkpoint thread alone: another thread that comes here meanwhile gets
//! what it asks for.
#![allow(unsafe_code)] // slots, and memory of the C library

use core::arch::asm;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use crate::driver::{Driver, Other, Result};

/// Number of slots: calloc(3) and free(3).
pub const SLOTS: usize = 2;

/// The state of the hooks, on the board. Only the checkpoint thread writes it.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Hooks {
    /// How often slots were led here: another thread may have come.
    pub(crate) led: AtomicU64,
    /// The thread pointer of the checkpoint thread.
    thread: AtomicU64,
    /// The functions that the slots led to.
    functions: [AtomicU64; SLOTS],
    /// The value of the handle that is kept, or 0.
    kept: AtomicU64,
    /// Whether libcuda has freed it.
    is_freed: AtomicU64,
    /// How many bytes a handle points to, or 0 if that is not known.
    bytes: AtomicU64,
    /// The first allocation of an import, and its length.
    first: [AtomicU64; 2],
}

type Calloc = unsafe extern "C" fn(u64, u64) -> u64;
type Free = unsafe extern "C" fn(u64);

/// Leads the slots to the hooks while `work` runs. A slot that the linker has changed meanwhile
/// keeps its new value.
///
/// # Safety
/// The slots are words of libcuda's with the addresses of calloc(3) and free(3); at `hooks` begins
/// code of the same types.
pub(crate) unsafe fn led<T>(
    state: &Hooks,
    slots: [u64; SLOTS],
    hooks: [u64; SLOTS],
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    // SAFETY: as the caller promises.
    let slots = slots.map(|slot| unsafe { &*(slot as *const AtomicU64) });
    // SAFETY: as the caller promises.
    unsafe { resolve(&slots) };
    state.led.fetch_add(1, Relaxed);
    state.thread.store(thread(), Relaxed);
    for word in [&state.kept, &state.is_freed, &state.bytes] {
        word.store(0, Relaxed);
    }
    for ((slot, hook), function) in slots.iter().zip(hooks).zip(&state.functions) {
        function.store(slot.load(Acquire), Relaxed);
        slot.store(hook, SeqCst);
    }
    let worked = work();
    for ((slot, hook), function) in slots.iter().zip(hooks).zip(&state.functions) {
        let _ = slot.compare_exchange(hook, function.load(Relaxed), SeqCst, Relaxed);
    }
    state.thread.store(0, Relaxed);
    worked
}

/// Calls both functions once: at the first call the linker writes a slot.
///
/// # Safety
/// As for [`led`].
unsafe fn resolve([calloc, free]: &[&AtomicU64; SLOTS]) {
    // SAFETY: as the caller promises; what is allocated is freed.
    unsafe {
        let calloc: Calloc = core::mem::transmute(calloc.load(Acquire));
        let free: Free = core::mem::transmute(free.load(Acquire));
        free(calloc(1, 1));
    }
}

/// The thread pointer: on x86-64 its first word is its own address (ELF TLS, variant II).
fn thread() -> u64 {
    let own;
    // SAFETY: every thread that calls libcuda has one.
    unsafe { asm!("mov {}, fs:0", out(reg) own, options(nostack, readonly, preserves_flags)) };
    own
}

impl Hooks {
    /// Releases all references to a handle whose import is not mapped, and keeps its value; returns
    /// how many references there were.
    pub(crate) fn release_all(&self, driver: Driver<'_>, handle: u64) -> Result<u64> {
        /// More references than any program has.
        const MOST: u64 = 64;
        self.keep(handle, 0);
        let mut released = 0;
        while released < MOST {
            driver.release_handle(handle)?;
            released += 1;
            if self.is_freed.load(Relaxed) != 0 {
                self.keep(0, 0);
                return Ok(released);
            }
        }
        Err(Other::References.failed(0))
    }

    /// Imports memory with a handle of the value that was kept. After an error the value is kept.
    pub(crate) fn import_as(&self, driver: Driver<'_>, file: u64, wanted: u64) -> Result<u64> {
        self.learn(driver, file)?;
        self.keep(wanted, 1);
        let handle = driver.import(file)?;
        if handle != wanted {
            let _ = driver.release_handle(handle);
            return Err(Other::Handle.failed(0));
        }
        Ok(handle)
    }

    /// Ends the keeping: handles are libcuda's again.
    pub(crate) fn release_value(&self) {
        self.keep(0, 0);
    }

    /// Frees a value that is kept and not used.
    pub(crate) fn free_value(&self, handle: u64) {
        self.keep(0, 0);
        self.freed_by_libc(handle);
    }

    /// Learns how many bytes a handle points to: the first that an import allocates.
    fn learn(&self, driver: Driver<'_>, file: u64) -> Result<()> {
        if self.bytes.load(Relaxed) != 0 {
            return Ok(());
        }
        let [first, bytes] = &self.first;
        first.store(0, Relaxed);
        let handle = driver.import(file)?;
        let is_first = first.load(Relaxed) == handle;
        driver.release_handle(handle)?;
        if !is_first {
            return Err(Other::Handle.failed(0));
        }
        self.bytes.store(bytes.load(Relaxed), Relaxed);
        Ok(())
    }

    fn freed_by_libc(&self, address: u64) {
        // SAFETY: the slot led there.
        let free: Free = unsafe { core::mem::transmute(self.functions[1].load(Relaxed)) };
        // SAFETY: it was allocated there, and nobody uses it.
        unsafe { free(address) };
    }

    fn keep(&self, handle: u64, is_freed: u64) {
        self.is_freed.store(is_freed, Relaxed);
        self.kept.store(handle, Relaxed);
    }
}

/// The functions that the image (`image.rs`) has entries for.
#[cfg_attr(not(test), allow(dead_code))]
impl Hooks {
    /// What libcuda calls in place of calloc(3).
    ///
    /// # Safety
    /// The hooks are led to.
    pub(crate) unsafe fn calloc(&self, count: u64, each: u64) -> u64 {
        let is_own = self.is_own_thread();
        let bytes = count.saturating_mul(each);
        let is_wanted = is_own && bytes == self.bytes.load(Relaxed);
        if is_wanted && self.is_freed.swap(0, Relaxed) != 0 {
            let kept = self.kept.load(Relaxed);
            for offset in 0..bytes {
                // SAFETY: it has as many bytes, which nobody uses.
                unsafe { ((kept + offset) as *mut u8).write_volatile(0) };
            }
            return kept;
        }
        // SAFETY: the slot led there.
        let calloc: Calloc = unsafe { core::mem::transmute(self.functions[0].load(Relaxed)) };
        // SAFETY: the caller's call.
        let made = unsafe { calloc(count, each) };
        let [first, length] = &self.first;
        if is_own && first.load(Relaxed) == 0 {
            first.store(made, Relaxed);
            length.store(bytes, Relaxed);
        }
        made
    }

    /// What libcuda calls in place of free(3).
    ///
    /// # Safety
    /// The hooks are led to; the address is to be freed.
    pub(crate) unsafe fn free(&self, address: u64) {
        let is_kept = address != 0 && self.kept.load(Relaxed) == address;
        if is_kept && self.is_own_thread() {
            self.is_freed.store(1, Relaxed);
        } else {
            self.freed_by_libc(address);
        }
    }

    fn is_own_thread(&self) -> bool {
        self.thread.load(Relaxed) == thread()
    }
}
