//! The slots through which the driver's library calls mmap(2) and `memcpy`, and the real mmap(2).
//!
//! No symbol gives a slot's value: `memcpy` is chosen at run time (an IFUNC), and a slot that was
//! never called through holds the address of the linker's stub. So the value of a slot is recorded
//! before it is changed.
//!
//! All data that is read here is the process's own: its files are read up to a limit, and an error
//! in them is a [`Refusal`].

mod build_id;
mod library;
mod refusal;
mod symbols;

use serde::{Deserialize, Serialize};
use stasis_linux::ProcessRef;
use stasis_linux::procfs::{Status, threads};
use stasis_remote_call::memory::word;

pub use build_id::BuildId;
use library::{Library, area_at, libraries};
pub use refusal::{Function, Refusal};
use symbols::Symbols;

/// The slots of one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slots {
    /// The build of the driver's library.
    pub build_id: BuildId,
    /// The slot for `memcpy`.
    pub memcpy: Slot,
    /// The slot for mmap(2).
    pub mmap: Slot,
    /// The address of the C library's mmap(2).
    pub(crate) libc_mmap: u64,
}

/// A word in the process's memory: the address of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// Address of the word.
    pub address: u64,
    /// The word's value at inspection.
    pub before: u64,
}

/// Finds the slots of a process, and changes nothing. It reads files of the process, which takes as
/// long as their file system takes.
///
/// # Errors
/// Why the process has to be left as it is.
pub fn inspect(process: &ProcessRef) -> Result<Slots, Refusal> {
    let pid = process.pid();
    let found = untraced(pid).and_then(|()| find(process));
    if process.is_gone() {
        return Err(Refusal::Ended);
    }
    found
}

/// Reads the build of the driver's library that a process has mapped, which may differ from the
/// node's. Changes nothing; takes as long as [`inspect`].
///
/// # Errors
/// Why the build is not known.
pub fn build_id(process: &ProcessRef) -> Result<BuildId, Refusal> {
    let found = the_driver(process).and_then(|driver| Symbols::read(&driver)?.build_id());
    if process.is_gone() {
        return Err(Refusal::Ended);
    }
    found
}

/// Finds the addresses of functions that the driver's library offers, and of the slots through
/// which it calls calloc(3) and free(3). Changes nothing; takes as long as [`inspect`].
///
/// # Errors
/// Why they are not known; also for a traced process: only its tracer can stop a thread of it.
pub fn functions(
    process: &ProcessRef,
    names: &[&'static str],
) -> Result<(Vec<u64>, [u64; 2]), Refusal> {
    let pid = process.pid();
    let found = untraced(pid).and_then(|()| {
        let driver = the_driver(process)?;
        let symbols = Symbols::read(&driver)?;
        let slot = |function| Ok::<u64, Refusal>(slot(pid, &symbols, function)?.address);
        let slots = [slot(Function::Calloc)?, slot(Function::Free)?];
        Ok((symbols::functions(&driver, names)?, slots))
    });
    if process.is_gone() {
        return Err(Refusal::Ended);
    }
    found
}

fn find(process: &ProcessRef) -> Result<Slots, Refusal> {
    let pid = process.pid();
    let driver = the_driver(process)?;
    let symbols = Symbols::read(&driver)?;
    Ok(Slots {
        memcpy: slot(pid, &symbols, Function::Memcpy)?,
        mmap: slot(pid, &symbols, Function::Mmap)?,
        libc_mmap: libc_mmap(process)?,
        build_id: symbols.build_id()?,
    })
}

/// Refuses a traced process. A debugger may look at the very instructions that run differently now,
/// and no other process can stop a thread that it traces.
fn untraced(pid: i32) -> Result<(), Refusal> {
    for thread in threads(pid)? {
        let tracer = Status::of_thread(pid, thread)?.and_then(|status| status.tracer());
        if tracer.is_some_and(|tracer| tracer != 0) {
            return Err(Refusal::Traced);
        }
    }
    Ok(())
}

fn the_driver(process: &ProcessRef) -> Result<Library, Refusal> {
    let is_driver = |name: &[u8]| name.starts_with(b"libcuda.so");
    let mut found = libraries(process, is_driver)?;
    match (found.pop(), found.is_empty()) {
        (None, _) => Err(Refusal::NoDriver),
        (Some(driver), true) => Ok(driver),
        (Some(_), false) => Err(Refusal::DriverTwice),
    }
}

fn slot(pid: i32, symbols: &Symbols, function: Function) -> Result<Slot, Refusal> {
    let address = symbols.slot(function)?;
    if address % 8 != 0 {
        // It could not be changed in one write.
        return Err(Refusal::NoSlot(function));
    }
    let area = area_at(pid, address)?.ok_or(Refusal::NoSlot(function))?;
    if !area.is_writable {
        return Err(Refusal::ReadOnly(function));
    }
    let before = word(pid, address)?;
    // Code of a file: the library's own stub, or a function that the linker has found. Anything
    // else was put there by another program, or by us.
    if !area_at(pid, before)?.is_some_and(|area| area.is_code_of_a_file) {
        return Err(Refusal::Hooked(function));
    }
    Ok(Slot { address, before })
}

/// Finds mmap(2) in the only C library: of two, the driver's library could call either.
fn libc_mmap(process: &ProcessRef) -> Result<u64, Refusal> {
    let is_libc = |name: &[u8]| {
        [&b"libc.so"[..], b"libc-", b"libc.musl", b"ld-musl"]
            .iter()
            .any(|begin| name.starts_with(begin))
    };
    let mut found = libraries(process, is_libc)?;
    let libc = match (found.pop(), found.is_empty()) {
        (Some(libc), true) if !libc.name.windows(4).any(|part| part == b"musl") => libc,
        _ => return Err(Refusal::OtherLibc),
    };
    let address = Symbols::read(&libc)?.mmap.ok_or(Refusal::OtherLibc)?;
    match area_at(process.pid(), address)? {
        Some(area) if area.is_code_of_a_file => Ok(address),
        _ => Err(Refusal::OtherLibc),
    }
}
