//! GPU contents in a file of ours become ordinary memory of their process.

use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use nix::libc;
use stasis_linux::ProcessRef;
use stasis_remote_call::{Proxy, Shared, memory};

use crate::error::InjectionError;
use crate::prepare::{map, unsigned};
use crate::record::Span;

/// What a thread copies at a time, bytes.
const PIECE: u64 = 4 << 20;

/// Replaces the file at these addresses of a process by private memory with the same contents, for
/// whoever can only save such memory. Nothing of the process may write there meanwhile; it has to
/// have room for the contents a second time within its limits, or the kernel ends it.
///
/// The new memory takes the place of the file in one call: whoever is killed before leaves it
/// beside, up to the size of the contents, and it can be done again.
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
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let Span { start, length } = contents;
    let beside = in_process(process, |proxy| map(proxy, 0, length, protection, flags))?;
    let copied = copy(process.pid(), contents, beside, threads);
    in_process(process, |proxy| match copied {
        Ok(()) => {
            let flags = unsigned(libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED);
            let arguments = [beside, length, length, flags, start];
            proxy.call(libc::SYS_mremap, &arguments).map(drop)
        }
        Err(error) => {
            proxy.call(libc::SYS_munmap, &[beside, length])?;
            Err(error)
        }
    })
}

/// The process has one more child for a moment only, and not while its contents are copied.
fn in_process<T>(
    process: &ProcessRef,
    work: impl FnOnce(&mut Proxy) -> io::Result<T>,
) -> io::Result<T> {
    let mut proxy = Proxy::of_running(process.pid(), Shared::Memory, || process.is_gone())?;
    let result = work(&mut proxy);
    proxy.end()?;
    result
}

fn copy(pid: i32, contents: Span, to: u64, threads: NonZeroUsize) -> io::Result<()> {
    let next = AtomicU64::new(0);
    let work = || -> io::Result<()> {
        let mut piece = vec![0; usize::try_from(PIECE).map_err(io::Error::other)?];
        loop {
            let offset = next.fetch_add(PIECE, Ordering::Relaxed);
            let Some(left @ 1..) = contents.length.checked_sub(offset) else {
                return Ok(());
            };
            let bytes = usize::try_from(left.min(PIECE)).map_err(io::Error::other)?;
            memory::read(pid, contents.start + offset, &mut piece[..bytes])?;
            memory::write(pid, to + offset, &piece[..bytes])?;
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
