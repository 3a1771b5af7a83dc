//! Turns GPU contents in a file of ours into ordinary memory of their process.

use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use nix::libc;
use stasis_linux::ProcessRef;
use stasis_linux::procfs::Mapping;
use stasis_remote_call::{Proxy, memory};

use crate::area::{in_process, is_all, make};
use crate::contents::check;
use crate::error::InjectionError;
use crate::prepare::{reserve, unsigned};
use crate::record::Span;

/// Bytes that a thread copies at a time.
const PIECE: u64 = 4 << 20;

/// Replaces the file at these addresses of a process by private memory with the same contents, for
/// a dump that can only save such memory. Nothing of the process may write there meanwhile.
///
/// The memory is the container's: where its cgroup has no room for the contents, the kernel ends a
/// process of it, which is no error here. The caller has checked the limits.
///
/// The new memory takes the place of the file in one call: a caller killed before leaves it beside,
/// up to the size of the contents each time, and perhaps a child that has ended
/// (`stasis-remote-call`); the call can be repeated.
///
/// # Errors
/// [`InjectionError::Private`]: the contents are where they were.
pub fn make_private(
    process: &ProcessRef,
    contents: Span,
    threads: NonZeroUsize,
) -> Result<(), InjectionError> {
    let replaced = replace(process, contents, threads);
    replaced.map_err(InjectionError::Private)
}

fn replace(process: &ProcessRef, contents: Span, threads: NonZeroUsize) -> io::Result<()> {
    check(process, contents)?;
    let beside = in_process(process, |proxy| memory_beside(proxy, contents.length))?;
    let copied = copy(process, contents, beside, threads);
    let moved = copied.and_then(|()| {
        let flags = unsigned(libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED);
        let Span { start, length } = beside;
        let arguments = [start, length, length, flags, contents.start];
        in_process(process, |proxy| proxy.call(libc::SYS_mremap, &arguments))
    });
    let Err(error) = moved else {
        return Ok(());
    };
    if is_all(process, contents, is_private)? {
        // The memory was moved, though the answer has not reached us in time.
        return Ok(());
    }
    let unmap = [beside.start, beside.length];
    let _ = in_process(process, |proxy| proxy.call(libc::SYS_munmap, &unmap));
    Err(error)
}

fn is_private(mapping: &Mapping<'_>) -> bool {
    mapping.permissions == *b"rw-p" && mapping.inode == 0
}

/// Maps memory that begins where a huge page does, as the contents do: so whole page tables are
/// moved. It has no pages yet, also where the process locks all its memory (mlockall(2)): the call
/// that maps it would have to get them all, with one thread.
pub(crate) fn memory_beside(proxy: &mut Proxy, length: u64) -> io::Result<Span> {
    let beside = reserve(proxy, length)?;
    let Span { start, length } = beside;
    let protection = unsigned(libc::PROT_READ | libc::PROT_WRITE);
    let calls = [
        (libc::SYS_munlock, [start, length, 0, 0, 0, 0]),
        (libc::SYS_mprotect, [start, length, protection, 0, 0, 0]),
    ];
    make(proxy, &calls).inspect_err(|_| {
        let _ = proxy.call(libc::SYS_munmap, &[start, length]);
    })?;
    Ok(beside)
}

fn copy(process: &ProcessRef, from: Span, to: Span, threads: NonZeroUsize) -> io::Result<()> {
    let pid = process.pid();
    let next = AtomicU64::new(0);
    let work = || -> io::Result<()> {
        let mut piece = vec![0; usize::try_from(PIECE).map_err(io::Error::other)?];
        loop {
            let offset = next.fetch_add(PIECE, Ordering::Relaxed);
            let Some(left @ 1..) = from.length.checked_sub(offset) else {
                return Ok(());
            };
            let bytes = usize::try_from(left.min(PIECE)).map_err(io::Error::other)?;
            if process.is_gone() {
                return Err(io::ErrorKind::NotFound.into());
            }
            memory::read(pid, from.start + offset, &mut piece[..bytes])?;
            memory::write(pid, to.start + offset, &piece[..bytes])?;
        }
    };
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads.get()).map(|_| scope.spawn(work)).collect();
        others.into_iter().fold(work(), |result, other| {
            let other = other.join();
            result.and(other.unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))))
        })
    })
}
