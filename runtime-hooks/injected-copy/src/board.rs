//! The memory behind the code: our settings, the code's report, and the state that threads share.
//!
//! Another process reads and writes it (process_vm_readv(2)), at the offsets given here. A child
//! that the process forks meanwhile finds only zeros (`MADV_WIPEONFORK`), and zeros are a board
//! too: nothing prepared, no helper, every call passed on.

use core::mem::offset_of;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

/// The most helpers that one process can have.
pub const HELPERS: usize = 64;
/// The most parts of one round.
pub(crate) const PARTS: usize = 64;

/// The shared memory, page-aligned behind the code.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Board {
    pub(crate) settings: Settings,
    pub(crate) report: CopyStatus,
    pub(crate) arrival: Arrival,
    pub(crate) news: News,
    pub(crate) job: Job,
    pub(crate) parts: [Part; PARTS],
    pub(crate) threads: [Thread; HELPERS],
}

/// Settings, written before a call can arrive, and not changed from then on.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Address of the prepared mapping; bytes copied into it and out of it are counted.
    pub mapping: u64,
    /// Length of the prepared mapping in bytes, whole pages. 0: there is none.
    pub mapping_length: u64,
    /// The shortest mmap of the driver that is for GPU contents, in bytes; `u64::MAX`: none is.
    pub answered_from: u64,
    /// Address of libc's mmap, which gets all other calls.
    pub real_mmap: u64,
}

/// Counters and results of the code.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct CopyStatus {
    /// Bytes copied into the prepared mapping and out of it.
    pub(crate) copied: AtomicU64,
    /// Length of the mmap that the prepared mapping has answered; 0: none yet.
    pub(crate) answered: AtomicU64,
    /// Length of the last mmap for contents that the mapping could not answer; 0: none.
    pub(crate) unanswered: AtomicU64,
    /// Why the rest of the prepared mapping is still there (errno); 0: it is not.
    pub(crate) rest_errno: AtomicU64,
    /// Bytes at the beginning of the prepared mapping that have been copied there, one after the
    /// other.
    pub(crate) filled: AtomicU64,
    /// Not 0: some of these bytes may have been written again.
    pub(crate) written_again: AtomicU64,
}

/// Progress of loading, written while contents are still being loaded.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Arrival {
    /// Bytes at the end of the prepared mapping that are not all loaded yet; it only falls.
    pub(crate) missing: AtomicU64,
}

/// State that waiting helpers watch.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct News {
    /// Counts the rounds. Helpers sleep on the lower half.
    pub(crate) generation: AtomicU64,
    /// Not 0: helpers end.
    pub(crate) quit: AtomicU64,
    /// How many helpers may be asleep; a helper killed in its sleep still counts.
    pub(crate) asleep: AtomicU64,
}

/// The round that is shared out.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Job {
    /// 1 while a thread has the helpers to itself.
    pub(crate) taken: AtomicU64,
    pub(crate) to: AtomicPtr<u8>,
    pub(crate) from: AtomicPtr<u8>,
    pub(crate) length: AtomicUsize,
}

/// Generation and owner of one part; see `job`.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Part(pub(crate) AtomicU64);

/// One helper.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Thread {
    /// Thread id: set by the kernel before the helper's first instruction (`CLONE_CHILD_SETTID`),
    /// and set to 0 behind its last one (`CLONE_CHILD_CLEARTID`).
    pub(crate) id: AtomicU32,
}

/// The report of the code, as read from a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reported {
    /// Bytes copied into the prepared mapping and out of it.
    pub copied: u64,
    /// Length in bytes of the mmap that the prepared mapping has answered.
    pub answered: Option<u64>,
    /// Length in bytes of the last mmap for GPU contents that it could not answer.
    pub unanswered: Option<u64>,
    /// Errno of the munmap(2) that left the rest of the prepared mapping mapped.
    pub rest_errno: Option<i32>,
    /// Bytes at the beginning of the prepared mapping that have their final contents: no later copy
    /// writes them. 0 once a copy did.
    pub filled: u64,
}

impl Board {
    /// Length of the board in bytes: whole pages.
    pub const LENGTH: usize = size_of::<Self>();
    /// Offset of the bytes of [`Settings::to_bytes`].
    pub const SETTINGS: usize = offset_of!(Self, settings);
    /// Offset of the bytes for [`Reported::from_bytes`].
    pub const REPORT: usize = offset_of!(Self, report);
    /// Offset of a `u64`: how many bytes at the end of the prepared mapping are not all loaded yet.
    /// A thread that copies from there waits, and reads the word every 10 ms.
    pub const MISSING: usize = offset_of!(Self, arrival.missing);
    /// Offset of a `u64`: any value but 0 ends all helpers; a sleeping helper within 10 ms.
    pub const QUIT: usize = offset_of!(Self, news.quit);

    /// Offsets of the helpers' thread ids (`u32`), for clone(2); the helper's index is the
    /// position. A new helper gets an index that no helper has had before it: the board still has
    /// the state of an earlier one.
    pub fn thread_ids() -> impl ExactSizeIterator<Item = usize> {
        let first = offset_of!(Self, threads) + offset_of!(Thread, id);
        (0..HELPERS).map(move |index| first + index * size_of::<Thread>())
    }
}

impl Settings {
    /// Returns the bytes to write to [`Board::SETTINGS`].
    pub fn to_bytes(&self) -> [u8; 32] {
        let words = [
            self.mapping,
            self.mapping_length,
            self.answered_from,
            self.real_mmap,
        ];
        let mut bytes = [0; 32];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

impl Reported {
    /// Reads the bytes at [`Board::REPORT`].
    #[must_use]
    pub fn from_bytes(bytes: &[u8; 48]) -> Self {
        let mut words = bytes
            .as_chunks()
            .0
            .iter()
            .map(|word| u64::from_ne_bytes(*word));
        let mut next = || words.next().unwrap_or_default();
        let some = |word| (word != 0).then_some(word);
        Self {
            copied: next(),
            answered: some(next()),
            unanswered: some(next()),
            rest_errno: some(next()).and_then(|errno| errno.try_into().ok()),
            filled: match (next(), next()) {
                (filled, 0) => filled,
                _ => 0,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_and_read_is_what_lies_there() {
        assert_eq!(Board::LENGTH % 4096, 0);
        let fields = [
            offset_of!(Settings, mapping),
            offset_of!(Settings, mapping_length),
            offset_of!(Settings, answered_from),
            offset_of!(Settings, real_mmap),
        ];
        assert_eq!(fields, [0, 8, 16, 24]);
        let settings = Settings {
            mapping: 1,
            mapping_length: 2,
            answered_from: 3,
            real_mmap: 4,
        };
        let words = settings
            .to_bytes()
            .as_chunks()
            .0
            .iter()
            .map(|&word| u64::from_ne_bytes(word))
            .collect::<Vec<_>>();
        assert_eq!(words, [1, 2, 3, 4]);

        let fields = [
            offset_of!(CopyStatus, copied),
            offset_of!(CopyStatus, answered),
            offset_of!(CopyStatus, unanswered),
            offset_of!(CopyStatus, rest_errno),
            offset_of!(CopyStatus, filled),
            offset_of!(CopyStatus, written_again),
        ];
        assert_eq!(fields, [0, 8, 16, 24, 32, 40]);
        for (written_again, filled) in [(0, 7), (1, 0)] {
            let bytes = [5_u64, 6, 0, 12, 7, written_again].map(u64::to_ne_bytes);
            let reported = Reported {
                copied: 5,
                answered: Some(6),
                unanswered: None,
                rest_errno: Some(12),
                filled,
            };
            assert_eq!(
                Reported::from_bytes(bytes.as_flattened().try_into().unwrap()),
                reported
            );
        }
    }

    #[test]
    fn each_helper_has_a_line_of_the_board() {
        let ids: Vec<usize> = Board::thread_ids().collect();
        assert_eq!(ids.len(), HELPERS);
        assert!(ids.windows(2).all(|pair| pair[1] - pair[0] == 64));
        assert!(ids[HELPERS - 1] + 64 <= Board::LENGTH);
    }
}
