//! The memory that we share with the thread: what it is asked, and what it answers.
//!
//! Another process writes and reads it (process_vm_writev(2)), so all is words of 64 bits. Who
//! asks writes the request while the thread is elsewhere, and reads the answer once its state says
//! that it is one.

use core::mem::offset_of;
use core::sync::atomic::AtomicU64;

use crate::driver::FUNCTIONS;

/// The most ranges of addresses that one request has.
pub const RANGES: usize = 1024;
/// The most allocations that one answer has.
const ALLOCATIONS: usize = 512;
/// Devices are asked about up to this one; no machine has more GPUs.
pub const DEVICES: usize = 16;

/// Lies page-aligned.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Board {
    pub(crate) request: Request,
    pub(crate) answer: Answer,
}

/// What is asked.
#[repr(C)]
#[derive(Debug, Clone)]
pub struct Request {
    /// Where the frame is by which the thread goes back (rt_sigreturn(2)), as a stack pointer.
    pub frame: u64,
    /// The addresses of [`FUNCTIONS`].
    pub functions: [u64; FUNCTIONS.len()],
    /// A [`What`].
    pub what: u64,
    /// The device whose context asks for allocations, as one that may use them; [`NO_CONTEXT`]: all
    /// that handles can be made of are told, and nothing else.
    pub device: u64,
    /// How long it may take to look, in nanoseconds. The first step is made in any case.
    pub limit_ns: u64,
    /// Where it begins.
    pub from: Cursor,
    /// How many ranges there are.
    pub count: u64,
    /// Where GPU memory may be.
    pub ranges: [Range; RANGES],
}

/// No device.
pub const NO_CONTEXT: u64 = u64::MAX;

/// A kind of question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum What {
    /// The allocations in the ranges.
    Allocations = 1,
    /// The pairs of contexts with peer access.
    Peers = 2,
}

/// A place among the ranges.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Cursor {
    /// The number of a range.
    pub range: u64,
    /// An address in it; below it, its beginning is meant.
    pub address: u64,
}

/// Addresses.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Range {
    /// The first one.
    pub start: u64,
    /// Behind the last one.
    pub end: u64,
}

/// What is answered.
#[repr(C)]
#[derive(Debug)]
pub struct Answer {
    /// A [`State`].
    pub(crate) state: AtomicU64,
    /// The position in [`FUNCTIONS`] of a call that failed although it must not, plus 1.
    pub(crate) failed: u64,
    /// What that call has returned.
    pub(crate) result: u64,
    /// Where it is to go on; behind the last range once all is there.
    pub(crate) next: Cursor,
    /// By bits: the devices whose primary context is there.
    pub(crate) active: u64,
    /// For the context of each device, by bits: those that it has peer access to.
    pub(crate) peers: [u64; DEVICES],
    pub(crate) count: u64,
    pub(crate) allocations: [Allocation; ALLOCATIONS],
}

/// How far the thread is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum State {
    /// It has not been here.
    Asked = 0,
    /// It has answered, and is on its way back.
    Answered = 1,
}

/// An allocation of GPU memory.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Allocation {
    /// Where it begins.
    pub address: u64,
    /// In bytes.
    pub bytes: u64,
    /// A [`Kind`].
    pub kind: u64,
    /// `CUmemLocationType` of virtual memory management: 1 is a device, 3 a NUMA node of the host.
    pub location_type: u64,
    /// Which of these.
    pub location: u64,
    /// The kinds of handles (`CUmemAllocationHandleType`) that can be made of it: none of what was
    /// imported, and of what was made so.
    pub handle_types: u64,
    /// By bits: the devices that may use it.
    pub access: u64,
}

/// What an allocation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Kind {
    /// Of cuMemAlloc.
    Ordinary = 1,
    /// Of virtual memory management (cuMemCreate), or imported as such.
    Virtual = 2,
    /// Of a memory pool.
    Pool = 3,
    /// Opened by cuIpcOpenMemHandle.
    LegacyImport = 4,
    /// Managed memory.
    Managed = 5,
    /// None of these: libcuda tells nothing of it.
    Unknown = 6,
}

impl Board {
    /// Its length in bytes: whole pages.
    pub const LENGTH: usize = size_of::<Self>();
    /// Where [`Request::words`] are written.
    pub const REQUEST: usize = offset_of!(Self, request);
    /// Where the words for [`Answer::read`] are.
    pub const ANSWER: usize = offset_of!(Self, answer);
    /// Where the word of the answer's state is.
    pub const STATE: usize = Self::ANSWER + offset_of!(Answer, state);
}

impl Request {
    /// As it is written to [`Board::REQUEST`]: up to the last range that it has.
    pub fn words(&self) -> impl Iterator<Item = u64> {
        let Self {
            frame,
            functions,
            what,
            device,
            limit_ns,
            from,
            count,
            ranges,
        } = self;
        let ranges = ranges
            .iter()
            .take(usize::try_from(*count).unwrap_or(RANGES));
        [*frame]
            .into_iter()
            .chain(*functions)
            .chain([*what, *device, *limit_ns, from.range, from.address, *count])
            .chain(ranges.flat_map(|range| [range.start, range.end]))
    }
}

impl Answer {
    /// How many words there are at [`Board::ANSWER`].
    pub const WORDS: usize = size_of::<Self>() / 8;
    /// How many of these there are in front of the allocations.
    const HEAD: usize = offset_of!(Self, allocations) / 8;

    /// Reads one from its words, which a process may have written that wishes us no good.
    #[must_use]
    pub fn read(words: &[u64; Self::WORDS]) -> Read<'_> {
        let (head, allocations) = words.split_at(Self::HEAD);
        let word = |index: usize| head.get(index).copied().unwrap_or_default();
        let peers = offset_of!(Self, peers) / 8;
        let count = usize::try_from(word(offset_of!(Self, count) / 8)).unwrap_or(ALLOCATIONS);
        Read {
            is_answered: word(0) == State::Answered as u64,
            failed: word(1).checked_sub(1).map(|call| (call, word(2))),
            next: Cursor {
                range: word(3),
                address: word(4),
            },
            active: word(5),
            peers: core::array::from_fn(|device| word(peers + device)),
            count: count.min(ALLOCATIONS),
            allocations,
        }
    }
}

/// An answer as it was read.
#[derive(Debug, Clone, Copy)]
pub struct Read<'w> {
    /// Whether it is one.
    pub is_answered: bool,
    /// The position of a call that failed, and its result.
    pub failed: Option<(u64, u64)>,
    /// Where to go on.
    pub next: Cursor,
    /// As in [`Answer`].
    pub active: u64,
    /// As in [`Answer`].
    pub peers: [u64; DEVICES],
    count: usize,
    allocations: &'w [u64],
}

impl Read<'_> {
    /// The allocations that were found.
    pub fn allocations(&self) -> impl Iterator<Item = Allocation> {
        let (each, _) = self.allocations.as_chunks::<7>();
        each.iter().take(self.count).map(|words| {
            let [
                address,
                bytes,
                kind,
                location_type,
                location,
                handle_types,
                access,
            ] = *words;
            Allocation {
                address,
                bytes,
                kind,
                location_type,
                location,
                handle_types,
                access,
            }
        })
    }
}

impl Answer {
    /// Adds one; whether there is room for more.
    pub(crate) fn add(&mut self, allocation: Allocation) -> bool {
        let index = usize::try_from(self.count).unwrap_or(ALLOCATIONS);
        if let Some(place) = self.allocations.get_mut(index) {
            *place = allocation;
            self.count += 1;
        }
        index + 1 < ALLOCATIONS
    }
}
