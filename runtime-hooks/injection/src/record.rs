//! The record that is needed to undo an injection, and the layout of its memory.
//!
//! All addresses are absolute, so that an installation with other code can put this one's back.

use std::io;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use stasis_injected_copy::{Board, Reported};
use stasis_remote_call::{Numbered, SCRATCH_BYTES, memory};

use crate::code::Image;
use crate::slots::Slots;

pub(crate) const PAGE: u64 = 4096;
/// Length of a worker's stack. The code asks for half of it.
const STACK: u64 = 8192;
/// Behind the board is a page of ours: a number that no other program writes there, the numbers of
/// all processes that we make (4 bytes each), and scratch memory.
const NUMBERS: u64 = 64;
const SCRATCH: u64 = 1024;
const _: () = assert!(NUMBERS + 4 * (MAX_WORKERS + 2) <= SCRATCH);
const _: () = assert!(SCRATCH + SCRATCH_BYTES <= PAGE);

/// The most workers. More bring nothing: the memory is as fast as it gets.
pub(crate) const MAX_WORKERS: u64 = 15;

/// A range of a process's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The first address.
    pub start: u64,
    /// Length in bytes.
    pub length: u64,
}

/// How a process is put back: to be kept, durably, before [`crate::Prepared::arm`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The slots and their earlier values.
    pub slots: Slots,
    /// The addresses that the slots hold meanwhile.
    pub(crate) memcpy: u64,
    pub(crate) mmap: u64,
    /// All memory of ours, which begins with the code.
    pub(crate) all: Span,
    pub(crate) code_length: u64,
    /// The number in our page, so that memory of another program is never taken for it.
    pub(crate) mark: u64,
    pub(crate) own_page: u64,
    /// Address of the code's report.
    pub(crate) report: u64,
    /// Address of the word with the bytes that are not loaded yet.
    pub(crate) missing: u64,
    pub(crate) workers: u64,
    /// Addresses reserved for the mapping that the driver is given.
    pub(crate) reserved: Option<Span>,
}

impl Record {
    /// Makes the record of code that lies at `start`.
    pub(crate) fn new(image: &Image, slots: Slots, start: u64, workers: u64) -> Self {
        let at = |offset: usize| start + offset as u64;
        Self {
            slots,
            memcpy: at(image.memcpy),
            mmap: at(image.mmap),
            all: Span {
                start,
                length: length(image, workers),
            },
            code_length: image.board as u64,
            mark: fastrand::u64(1..),
            own_page: at(image.board + Board::LENGTH),
            report: at(image.board + Board::REPORT),
            missing: at(image.board + Board::MISSING),
            workers,
            reserved: None,
        }
    }

    pub(crate) fn code(&self) -> Range<u64> {
        self.all.start..self.all.start + self.code_length
    }

    pub(crate) fn board(&self) -> u64 {
        self.all.start + self.code_length
    }

    pub(crate) fn scratch(&self) -> u64 {
        self.own_page + SCRATCH
    }

    /// Returns the top of a worker's stack.
    pub(crate) fn stack(&self, worker: u64) -> u64 {
        self.own_page + PAGE + (worker + 1) * STACK
    }

    /// Returns where the number of the proxy of that turn is listed: one arms, one puts back.
    pub(crate) fn proxy(&self, turn: Turn) -> Numbered {
        let index = match turn {
            Turn::Arm => 0,
            Turn::PutBack => 1,
        };
        Numbered {
            listed: self.own_page + NUMBERS + index * 4,
            cleared_at_end: None,
        }
    }

    /// Returns where the number of a worker is listed, which the board has as long as it lives.
    pub(crate) fn worker(&self, index: u64, thread_id: usize) -> Numbered {
        Numbered {
            listed: self.own_page + NUMBERS + (2 + index) * 4,
            cleared_at_end: Some(self.board() + thread_id as u64),
        }
    }

    /// Reads the numbers of all processes that were made.
    pub(crate) fn numbers(&self, pid: i32) -> io::Result<Vec<i32>> {
        let count = usize::try_from(self.workers.min(MAX_WORKERS) + 2).map_err(io::Error::other)?;
        let mut bytes = vec![0; count * 4];
        memory::read(pid, self.own_page + NUMBERS, &mut bytes)?;
        let (words, _) = bytes.as_chunks();
        Ok(words.iter().map(|word| i32::from_ne_bytes(*word)).collect())
    }

    /// Writes how many bytes at the end of the contents are not all loaded yet.
    pub(crate) fn set_missing(&self, pid: i32, bytes: u64) -> io::Result<()> {
        memory::write(pid, self.missing, &bytes.to_ne_bytes())
    }

    /// Reads the code's report so far in the process of this record, while the code is mapped.
    ///
    /// # Errors
    /// An error of process_vm_readv(2).
    pub fn reported(&self, pid: i32) -> io::Result<Reported> {
        let mut bytes = [0; 48];
        memory::read(pid, self.report, &mut bytes)?;
        Ok(Reported::from_bytes(&bytes))
    }
}

/// The step that makes a proxy.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Turn {
    Arm,
    PutBack,
}

/// Returns the length of all our memory.
pub(crate) fn length(image: &Image, workers: u64) -> u64 {
    (image.board + Board::LENGTH) as u64 + PAGE + workers * STACK
}
