//! Puts code of ours into a process, where no thread calls it yet.

use std::fs::File;
use std::io;

use nix::libc;
use stasis_injected_copy::{Board, Settings};
use stasis_linux::ProcessRef;
use stasis_remote_call::{Proxy, memory};

use crate::area::in_process;
use crate::code::{IMAGE, Image};
use crate::error::InjectionError;
use crate::record::{MAX_WORKERS, PAGE, Record, Span, length};
use crate::slots::Slots;

/// Address and offset in the file are the same modulo this: huge pages are mapped as such.
const HUGE_PAGE: u64 = 2 << 20;
/// The driver's own mmap(2) for contents is larger, and no other of its calls is like it.
const ANSWERED_FROM: u64 = 4 << 20;

/// The driver's next call, and the file or contents for it.
#[derive(Debug)]
pub enum Transfer {
    /// The driver's checkpoint: the mapping that it asks for is of this file.
    Out {
        /// Has whole pages; the part that the driver does not ask for is unmapped.
        file: File,
        /// Where the mapping begins in the file; whole huge pages (2 MiB).
        offset: u64,
        /// Length in bytes.
        length: u64,
    },
    /// The driver's restore, from contents that are mapped already.
    In {
        /// Addresses of the contents.
        contents: Span,
    },
    /// The driver's restore, from contents that are mapped, and of which nothing has been loaded
    /// yet: the copying threads wait for [`crate::Armed::loaded`].
    Arriving {
        /// Addresses of the contents.
        contents: Span,
    },
}

/// A process with code in it that no thread calls.
#[derive(Debug)]
pub struct Prepared {
    pub(crate) process: ProcessRef,
    pub(crate) image: Image,
    pub(crate) record: Record,
    pub(crate) transfer: Transfer,
}

impl Prepared {
    /// Returns how to put the process back. The caller has to keep it where it survives us before
    /// [`Self::arm`], and until [`crate::put_back`] or [`crate::Armed::disarm`] has succeeded.
    pub fn record(&self) -> &Record {
        &self.record
    }
}

/// Puts the code into a process, for as many workers (at most 15; 0: the driver copies alone), and
/// reserves addresses for a file. A thread of the process stands still meanwhile.
///
/// # Errors
/// [`InjectionError::Prepare`]: the process is as it was.
pub fn prepare(
    process: &ProcessRef,
    slots: Slots,
    transfer: Transfer,
    workers: u64,
) -> Result<Prepared, InjectionError> {
    let workers = workers.min(MAX_WORKERS);
    let placed = in_process(process, |proxy| {
        place(proxy, &IMAGE, slots, &transfer, workers)
    });
    Ok(Prepared {
        process: process.clone(),
        image: IMAGE,
        record: placed.map_err(InjectionError::Prepare)?,
        transfer,
    })
}

fn place(
    proxy: &mut Proxy,
    image: &Image,
    slots: Slots,
    transfer: &Transfer,
    workers: u64,
) -> io::Result<Record> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let length = length(image, workers);
    let start = map(
        proxy,
        0,
        length,
        protection,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    )?;
    let record = Record::new(image, slots, start, workers);
    fill(proxy, image, record, transfer).inspect_err(|_| {
        let _ = proxy.call(libc::SYS_munmap, &[start, length]);
    })
}

/// Writes code and settings. A child that the process forks meanwhile has the code, which its slots
/// lead to, and otherwise zeros: it has no workers.
fn fill(
    proxy: &mut Proxy,
    image: &Image,
    mut record: Record,
    transfer: &Transfer,
) -> io::Result<Record> {
    let Span { start, length } = record.all;
    let board = record.board();
    memory::write(proxy.pid(), start, image.code)?;
    memory::write(proxy.pid(), record.own_page, &record.mark.to_ne_bytes())?;
    let code = unsigned(libc::PROT_READ | libc::PROT_EXEC);
    proxy.call(libc::SYS_mprotect, &[start, board - start, code])?;
    let (rest, wipe) = (start + length - board, unsigned(libc::MADV_WIPEONFORK));
    proxy.call(libc::SYS_madvise, &[board, rest, wipe])?;
    let (contents, answered_from) = match transfer {
        Transfer::Out { length, .. } => {
            let reserved = reserve(proxy, *length)?;
            record.reserved = Some(reserved);
            (reserved, ANSWERED_FROM)
        }
        Transfer::In { contents } | Transfer::Arriving { contents } => (*contents, u64::MAX),
    };
    let settings = Settings {
        mapping: contents.start,
        mapping_length: contents.length,
        answered_from,
        real_mmap: record.slots.libc_mmap,
    };
    memory::write(
        proxy.pid(),
        board + Board::SETTINGS as u64,
        &settings.to_bytes(),
    )?;
    if let Transfer::Arriving { contents } = transfer {
        record.set_missing(proxy.pid(), contents.length)?;
    }
    Ok(record)
}

/// Reserves addresses without memory, from the beginning of a huge page on.
pub(crate) fn reserve(proxy: &mut Proxy, length: u64) -> io::Result<Span> {
    let length = length.next_multiple_of(PAGE);
    let room = length
        .checked_add(HUGE_PAGE)
        .ok_or(io::ErrorKind::InvalidInput)?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let all = map(proxy, 0, room, libc::PROT_NONE, flags)?;
    let start = all.next_multiple_of(HUGE_PAGE);
    let end = start + length;
    for (from, to) in [(all, start), (end, all + room)] {
        if from < to {
            proxy
                .call(libc::SYS_munmap, &[from, to - from])
                .inspect_err(|_| {
                    let _ = proxy.call(libc::SYS_munmap, &[all, room]);
                })?;
        }
    }
    Ok(Span { start, length })
}

pub(crate) fn map(
    proxy: &mut Proxy,
    start: u64,
    length: u64,
    protection: i32,
    flags: i32,
) -> io::Result<u64> {
    let arguments = [
        start,
        length,
        unsigned(protection),
        unsigned(flags),
        u64::MAX,
        0,
    ];
    proxy.call(libc::SYS_mmap, &arguments)
}

pub(crate) fn unsigned(flags: i32) -> u64 {
    flags.cast_unsigned().into()
}
