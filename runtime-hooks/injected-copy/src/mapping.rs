//! mmap(2), as the driver calls it.
#![allow(unsafe_code)] // raw memory of the process

use core::sync::atomic::Ordering::{AcqRel, Relaxed};

use crate::board::Board;
use crate::system;

const PAGE: u64 = 4096;
/// `MAP_FAILED`.
const FAILED: u64 = u64::MAX;
/// A length that no process has room for.
const TOO_LONG: u64 = !(PAGE - 1);

/// `PROT_`.
const NONE: i32 = 0;
const READ: i32 = 1;
const READ_WRITE: i32 = 3;
/// `MAP_ANONYMOUS | MAP_FIXED`.
const IN_PLACE: i32 = 0x20 | 0x10;
/// Longer than any mapping of a device, which are 56 MiB at most (measured on driver 580.159), and
/// shorter than what the driver reserves for contents.
const LONGEST_OF_DEVICE: u64 = 64 << 20;
/// `MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE`.
const POPULATED: i32 = 0x2 | 0x20 | 0x8000;

/// libc's mmap.
type Mmap = unsafe extern "C" fn(u64, u64, i32, i32, i32, i64) -> u64;

/// The arguments of one call, in the order of mmap(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The requested address; 0: any.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
    /// `PROT_` flags.
    pub protection: i32,
    /// `MAP_` flags.
    pub flags: i32,
    /// Descriptor of the file.
    pub descriptor: i32,
    /// Offset in the file.
    pub offset: i64,
}

impl Call {
    /// The driver's call for GPU contents of `length` bytes.
    #[must_use]
    pub fn for_contents(length: u64) -> Self {
        Self {
            address: 0,
            length,
            protection: READ_WRITE,
            flags: POPULATED,
            descriptor: -1,
            offset: 0,
        }
    }
}

/// Answers the driver's call for GPU contents with the prepared mapping, once; passes on all
/// others. Address ranges that a checkpoint leaves in place of a device become readable.
///
/// A call for contents that the mapping is too short for, or that comes again, fails with ENOMEM:
/// the driver then leaves the process as it was (`CUDA_ERROR_OUT_OF_MEMORY`), where the kernel
/// would kill it for the limit of its container.
///
/// # Safety
/// As for mmap(2); the settings are true.
pub unsafe fn mmap(board: &Board, call: Call) -> u64 {
    let (settings, length) = (&board.settings, call.length);
    let is_for_contents = settings.mapping_length != 0
        && call == Call::for_contents(length)
        && length >= settings.answered_from;
    // SAFETY: as the caller promises.
    unsafe {
        if !is_for_contents {
            return pass_on(board, readable(board, call));
        }
        if length <= settings.mapping_length && is_first(board, length) {
            unmap_rest(board, length);
            return settings.mapping;
        }
        board.report.unanswered.store(length, Relaxed);
        refuse(board)
    }
}

/// Makes addresses readable that a checkpoint leaves, without rights, in place of a device, which a
/// restore maps there again. Threads may look there meanwhile, to see whether a channel has failed
/// (`stasis_injection::readable` lists these ranges): zeros mean none; a fault would end them.
fn readable(board: &Board, call: Call) -> Call {
    let settings = &board.settings;
    let is_checkpoint = settings.mapping_length != 0 && settings.answered_from != u64::MAX;
    let is_of_device = call.protection == NONE
        && call.flags & IN_PLACE == IN_PLACE
        && call.length <= LONGEST_OF_DEVICE;
    match is_checkpoint && is_of_device {
        true => Call {
            protection: READ,
            ..call
        },
        false => call,
    }
}

/// Takes the prepared mapping; false if an earlier call has taken it.
fn is_first(board: &Board, length: u64) -> bool {
    let answered = &board.report.answered;
    length != 0
        && answered
            .compare_exchange(0, length, AcqRel, Relaxed)
            .is_ok()
}

/// Unmaps the rest, which the driver does not know of and so never unmaps. The start of the mapping
/// stays: its address and its offset in the file must differ by whole huge pages.
///
/// # Safety
/// The prepared mapping is at least `length` long, and no thread uses its rest.
unsafe fn unmap_rest(board: &Board, length: u64) {
    let used = length.next_multiple_of(PAGE);
    let rest = board.settings.mapping_length.saturating_sub(used);
    if rest != 0 {
        // SAFETY: as the caller promises.
        let unmapped = unsafe { system::unmap(board.settings.mapping + used, rest) };
        board
            .report
            .rest_errno
            .store(unmapped.err().unwrap_or(0), Relaxed);
    }
}

/// # Safety
/// As for mmap(2); the settings are true.
unsafe fn pass_on(board: &Board, call: Call) -> u64 {
    // SAFETY: libc's mmap, or 0, which is `None`.
    let real = unsafe { core::mem::transmute::<u64, Option<Mmap>>(board.settings.real_mmap) };
    let Call {
        address,
        length,
        protection,
        flags,
        descriptor,
        offset,
    } = call;
    match real {
        // SAFETY: as the caller promises.
        Some(real) => unsafe { real(address, length, protection, flags, descriptor, offset) },
        // A child that the process has forked has an empty board.
        None => {
            let words = [protection, flags, descriptor].map(|word| i64::from(word).cast_unsigned());
            let [protection, flags, descriptor] = words;
            let arguments = [
                address,
                length,
                protection,
                flags,
                descriptor,
                offset.cast_unsigned(),
            ];
            // SAFETY: as the caller promises.
            u64::try_from(unsafe { system::map(arguments) }).unwrap_or(FAILED)
        }
    }
}

/// Fails with ENOMEM. Only libc can set this thread's `errno`, so libc is asked for too much.
///
/// # Safety
/// The settings are true.
unsafe fn refuse(board: &Board) -> u64 {
    // SAFETY: no address is named, and there is no room for this length: nothing is mapped.
    unsafe { pass_on(board, Call::for_contents(TOO_LONG)) };
    FAILED
}
