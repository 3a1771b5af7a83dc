//! Puts a process back as it was.

use std::io;
use std::ops::ControlFlow;

use nix::libc;
use stasis_injected_copy::Reported;
use stasis_linux::ProcessRef;
use stasis_linux::procfs::for_each_mapping;
use stasis_remote_call::memory::{word, write};
use stasis_remote_call::{Proxy, reap, wait_until_outside};

use crate::error::InjectionError;
use crate::record::{Record, Span, Turn};

/// State of a process that was put back. The process has its slots back in every case.
#[derive(Debug)]
pub enum PutBack {
    /// The process has ended.
    Ended,
    /// The process has nothing of ours (any more).
    NothingThere,
    /// The process is as it was, but for the mapping that the driver was given.
    Returned(Returned),
    /// A thread of the process is still in the code, or was not seen outside. No thread enters the
    /// code any more; it stays mapped until the call is repeated, or for ever.
    CodeLeft(io::Error),
}

/// The mapping that the driver was given, and the code's report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Returned {
    /// The mapping of the file that the driver was given, and that it unmaps itself after its
    /// restore; `None` if it asked for none: then nothing of the file is mapped.
    pub contents: Option<Span>,
    /// The report of the code.
    pub reported: Reported,
}

/// Puts back a process, at whichever step its injection was left. Any process may call and repeat
/// it, as long as no other does; the process that armed it has ended.
pub fn put_back(process: &ProcessRef, record: &Record) -> Result<PutBack, InjectionError> {
    match in_order(process, record) {
        _ if process.is_gone() => Ok(PutBack::Ended),
        other => other.map_err(InjectionError::PutBack),
    }
}

fn in_order(process: &ProcessRef, record: &Record) -> io::Result<PutBack> {
    let pid = process.pid();
    let is_gone = || process.is_gone();
    put_slots_back(pid, record)?;
    if !is_there(pid, record)? {
        return Ok(PutBack::NothingThere);
    }
    // No process would report more loaded contents to a thread that waits there.
    record.set_missing(pid, 0)?;
    // Workers execute the code, too; those of a process of ours that was killed are ending.
    reap(pid, &record.numbers(pid)?, is_gone)?;
    if let Err(error) = wait_until_outside(pid, &record.code(), is_gone) {
        return Ok(PutBack::CodeLeft(error));
    }
    // Only now no call can be given the mapping any more.
    let reported = record.reported(pid)?;
    let mut proxy = Proxy::numbered(pid, record.proxy(Turn::PutBack), is_gone)?;
    let contents = unmap(&mut proxy, record, reported);
    proxy.end()?;
    let contents = contents?;
    Ok(PutBack::Returned(Returned { contents, reported }))
}

/// Puts the slots back. A slot that does not lead to the code is left alone: the linker may have
/// found the function meanwhile.
pub(crate) fn put_slots_back(pid: i32, record: &Record) -> io::Result<()> {
    let slots = &record.slots;
    for (slot, code) in [(slots.memcpy, record.memcpy), (slots.mmap, record.mmap)] {
        if word(pid, slot.address)? == code {
            write(pid, slot.address, &slot.before.to_ne_bytes())?;
        }
    }
    Ok(())
}

/// Whether our memory is mapped: executable memory without a file, and our number behind it.
fn is_there(pid: i32, record: &Record) -> io::Result<bool> {
    let code = record.code();
    let found = for_each_mapping(pid, |mapping| {
        // The kernel may have joined our mapping with another.
        let has_code = mapping.start <= code.start && code.end <= mapping.end;
        match has_code && mapping.has(b'x') && mapping.inode == 0 {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    })?;
    Ok(found.is_some() && word(pid, record.own_page)? == record.mark)
}

/// Unmaps our memory. The code goes last: as long as it is mapped this can be repeated.
fn unmap(proxy: &mut Proxy, record: &Record, reported: Reported) -> io::Result<Option<Span>> {
    let mut unmap = |Span { start, length }| proxy.call(libc::SYS_munmap, &[start, length]);
    let contents = match (record.reserved, reported.answered) {
        (None, _) => None,
        (Some(reserved), None) => {
            unmap(reserved)?;
            None
        }
        (Some(reserved), Some(length)) => {
            let Span { start, length } = Span {
                start: reserved.start,
                length: length
                    .next_multiple_of(crate::record::PAGE)
                    .min(reserved.length),
            };
            // The code has unmapped the rest, unless it could not.
            if reported.rest_errno.is_some() && length < reserved.length {
                unmap(Span {
                    start: start + length,
                    length: reserved.length - length,
                })?;
            }
            Some(Span { start, length })
        }
    };
    unmap(record.all)?;
    Ok(contents)
}
