//! The memory that we share with the thread: its request, and its answer.
//!
//! Another process writes and reads it (process_vm_writev(2)), so all is words of 64 bits. The
//! asking process writes the request while the thread is elsewhere, and reads the answer once its
//! state is [`VisitState::Answered`]. In between the thread may wait for the host word of the
//! asking process.

mod allocation;
mod answer;

use core::mem::offset_of;
use core::sync::atomic::AtomicU64;

pub use crate::driver::DEVICES;
use crate::driver::FUNCTIONS;
use crate::hooks::Hooks;
pub use crate::hooks::SLOTS;
pub use allocation::{Allocation, Kind};
pub use answer::{Answer, Read, VisitState};

/// The most items that one request has.
pub const ITEMS: usize = 1024;
/// The most descriptors that one request has.
pub const FILES: usize = 64;

/// The shared memory, page-aligned.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Board {
    pub(crate) request: Request,
    /// How often the asking process has let the thread continue.
    pub(crate) host: AtomicU64,
    pub(crate) answer: Answer,
    pub(crate) hooks: Hooks,
}

/// A request to the thread.
#[repr(C)]
#[derive(Debug, Clone)]
pub struct Request {
    /// The frame by which the thread goes back (rt_sigreturn(2)), as a stack pointer.
    pub frame: u64,
    /// The addresses of [`FUNCTIONS`].
    pub functions: [u64; FUNCTIONS.len()],
    /// The addresses of the slots through which libcuda calls calloc(3) and free(3).
    pub slots: [u64; SLOTS],
    /// The addresses of the code that the slots lead to while imports are worked on.
    pub hooks: [u64; SLOTS],
    /// A [`What`].
    pub what: u64,
    /// The device whose context asks for allocations, as one that may use them; [`NO_CONTEXT`]: the
    /// answer lists all that handles can be made of, and nothing else.
    pub device: u64,
    /// The most time to look, or to drop, in nanoseconds. The first step is made in any case.
    pub limit_ns: u64,
    /// How long the thread waits each time for the asking process, in nanoseconds.
    pub patience_ns: u64,
    /// Where the thread begins.
    pub from: Cursor,
    /// The number of items.
    pub count: u64,
    /// The items of the request.
    pub items: [Item; ITEMS],
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
    /// Tags are written to memory of the process, and read where others may have it mapped.
    Identify = 3,
    /// Imports are given up; their addresses stay reserved.
    Drop = 4,
    /// Descriptors are made of memory of the process.
    Export = 5,
    /// Memory is mapped whose descriptors are sent.
    Import = 6,
}

/// A place among the items.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Cursor {
    /// Number of an item.
    pub range: u64,
    /// An address in the item; if lower, the item's beginning.
    pub address: u64,
}

/// An address range, and what to do there.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Item {
    /// The first address.
    pub address: u64,
    /// Length in bytes. Of [`What::Identify`]: 0 where a tag is to be read.
    pub bytes: u64,
    /// Of [`What::Identify`], the device whose context copies; of [`What::Import`], by bits, the
    /// devices that get access.
    pub device: u64,
    /// Of [`What::Identify`], the tag's first word; of [`What::Import`], how many references remain
    /// beside the mapping.
    pub first: u64,
    /// Of [`What::Identify`], the tag's second word; of [`What::Import`], a [`Where`].
    pub second: u64,
    /// Of [`What::Import`], the value of the handle.
    pub handle: u64,
}

/// Where memory is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Where {
    /// At its address.
    There = 0,
    /// At addresses reserved for it and freed again, to see whether it can be mapped.
    Elsewhere = 1,
}

impl Board {
    /// Length of the board in bytes: whole pages.
    pub const LENGTH: usize = size_of::<Self>();
    /// Offset at which [`Request::words`] are written.
    pub const REQUEST: usize = offset_of!(Self, request);
    /// Offset of the host word, which the asking process writes.
    pub const HOST: usize = offset_of!(Self, host);
    /// Offset of the words for [`Answer::read`].
    pub const ANSWER: usize = offset_of!(Self, answer);
    /// Offset of the number that is not 0 once other threads may have come to the code.
    pub const LED: usize = offset_of!(Self, hooks) + offset_of!(Hooks, led);
    /// Offset of the answer's state.
    pub const STATE: usize = Self::ANSWER + offset_of!(Answer, state);
}

impl Request {
    /// Returns the words to write to [`Board::REQUEST`]: up to the last item of the request.
    pub fn words(&self) -> impl Iterator<Item = u64> {
        let Self {
            frame,
            functions,
            slots,
            hooks,
            what,
            device,
            limit_ns,
            patience_ns,
            from,
            count,
            items,
        } = self;
        let items = items.iter().take(usize::try_from(*count).unwrap_or(ITEMS));
        [*frame]
            .into_iter()
            .chain(*functions)
            .chain(slots.iter().chain(hooks).copied())
            .chain([*what, *device, *limit_ns, *patience_ns])
            .chain([from.range, from.address, *count])
            .chain(items.flat_map(|item| item.words()))
    }
}

impl Item {
    fn words(self) -> [u64; 6] {
        let Self {
            address,
            bytes,
            device,
            first,
            second,
            handle,
        } = self;
        [address, bytes, device, first, second, handle]
    }
}
