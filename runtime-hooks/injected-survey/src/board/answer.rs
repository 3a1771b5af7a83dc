//! The answer of the thread, and how it is read.

use core::mem::offset_of;
use core::sync::atomic::AtomicU64;

use super::{Allocation, Cursor, DEVICES, ITEMS};

/// The most allocations that one answer has.
const ALLOCATIONS: usize = 512;

/// The answer of the thread.
#[repr(C)]
#[derive(Debug)]
pub struct Answer {
    /// A [`VisitState`].
    pub(crate) state: AtomicU64,
    /// The number of the call that failed but must not ([`name_of`](crate::name_of)), plus 1.
    pub(crate) failed: u64,
    /// The result of that call.
    pub(crate) result: u64,
    /// The number of the item for which the call failed.
    pub(crate) item: AtomicU64,
    /// Not 0: the asking process did not let the thread continue in time.
    pub(crate) abandoned: AtomicU64,
    /// A socket of the thread's, for the asking process.
    pub(crate) socket: AtomicU64,
    /// Where to continue; behind the last item once the answer is complete.
    pub(crate) next: Cursor,
    /// By bits: the devices that have a primary context.
    pub(crate) active: u64,
    /// For the context of each device, by bits: the devices that it has peer access to.
    pub(crate) peers: [u64; DEVICES],
    /// For each item, its values.
    pub(crate) values: [[AtomicU64; 2]; ITEMS],
    pub(crate) count: u64,
    pub(crate) allocations: [Allocation; ALLOCATIONS],
}

/// How far the thread has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum VisitState {
    /// The thread has not been here.
    Asked = 0,
    /// The thread has answered, and is on its way back.
    Answered = 1,
    /// The thread has done its first part, and waits.
    Holding = 2,
    /// The thread has read the tags of others, and waits once more.
    Read = 3,
}

impl Answer {
    /// Number of words at [`Board::ANSWER`](super::Board::ANSWER).
    pub const WORDS: usize = size_of::<Self>() / 8;
    /// Number of words in front of the allocations.
    const HEAD: usize = offset_of!(Self, allocations) / 8;

    /// Reads an answer from its words, which a hostile process may have written.
    #[must_use]
    pub fn read(words: &[u64; Self::WORDS]) -> Read<'_> {
        let (head, allocations) = words.split_at(Self::HEAD);
        let word = |offset: usize| head.get(offset / 8).copied().unwrap_or_default();
        let peers = offset_of!(Self, peers);
        let next = offset_of!(Self, next);
        let failed = word(offset_of!(Self, failed)).checked_sub(1);
        let values = head.get(offset_of!(Self, values) / 8..);
        let count = usize::try_from(word(offset_of!(Self, count))).unwrap_or(ALLOCATIONS);
        Read {
            is_answered: word(offset_of!(Self, state)) == VisitState::Answered as u64,
            is_abandoned: word(offset_of!(Self, abandoned)) != 0,
            failed: failed.map(|call| (call, word(offset_of!(Self, result)))),
            item: word(offset_of!(Self, item)),
            socket: word(offset_of!(Self, socket)),
            next: Cursor {
                range: word(next),
                address: word(next + 8),
            },
            active: word(offset_of!(Self, active)),
            peers: core::array::from_fn(|device| word(peers + device * 8)),
            count: count.min(ALLOCATIONS),
            allocations,
            values: values.unwrap_or_default(),
        }
    }

    /// Adds an allocation; returns whether there is room for more.
    pub(crate) fn add(&mut self, allocation: Allocation) -> bool {
        let index = usize::try_from(self.count).unwrap_or(ALLOCATIONS);
        if let Some(place) = self.allocations.get_mut(index) {
            *place = allocation;
            self.count += 1;
        }
        index + 1 < ALLOCATIONS
    }
}

/// An answer as it was read.
#[derive(Debug, Clone, Copy)]
pub struct Read<'w> {
    /// Whether the answer is complete.
    pub is_answered: bool,
    /// Whether the asking process did not let the thread continue in time.
    pub is_abandoned: bool,
    /// The number of the call that failed, and its result.
    pub failed: Option<(u64, u64)>,
    /// The number of the item for which it failed.
    pub item: u64,
    /// The descriptor number of a socket that the thread has made.
    pub socket: u64,
    /// Where to continue.
    pub next: Cursor,
    /// As in [`Answer`].
    pub active: u64,
    /// As in [`Answer`].
    pub peers: [u64; DEVICES],
    count: usize,
    allocations: &'w [u64],
    values: &'w [u64],
}

impl Read<'_> {
    /// The values of each item; arbitrary words for an item that the request does not have.
    pub fn values(&self) -> impl Iterator<Item = [u64; 2]> {
        let (each, _) = self.values.as_chunks();
        each.iter().take(ITEMS).copied()
    }

    /// The allocations in the answer.
    pub fn allocations(&self) -> impl Iterator<Item = Allocation> {
        let (each, _) = self.allocations.as_chunks::<8>();
        each.iter().take(self.count).map(|words| {
            let [
                address,
                bytes,
                kind,
                location_type,
                location,
                handle_types,
                access,
                handle,
            ] = *words;
            Allocation {
                address,
                bytes,
                kind,
                location_type,
                location,
                handle_types,
                access,
                handle,
            }
        })
    }
}
