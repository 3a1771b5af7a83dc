//! Detaches GPU contents from their process, and gives them back: in between, a dump finds a
//! range of addresses without memory, and the driver notices nothing.
//!
//! The driver must not be asked to restore while they are detached: it ends with SIGSEGV then.
//!
//! # If we are killed
//! Each step may be repeated after a kill in any of them. One page of memory may be left in the
//! process each time, and a child that has ended (`stasis-remote-call`).

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use nix::libc;
use stasis_linux::ProcessRef;
use stasis_linux::memory_file::mark;
use stasis_linux::procfs::{Mapping, open_mapped};
use stasis_remote_call::Proxy;

use crate::area::{Call, in_process, is_all, make};
use crate::contents::{Sharing, check};
use crate::error::InjectionError;
use crate::prepare::{self, unsigned};
use crate::record::{PAGE, Span};

/// Detaches the contents: the process maps their file no more, unless it has kept another
/// mapping, and the kernel frees the file with the last descriptor of it. Nothing of the process
/// may use the contents.
///
/// # Errors
/// [`InjectionError::Hole`]: the process has no contents there, and no hole either; or as
/// [`Proxy::of_running`] and mmap(2).
pub fn unmap(process: &ProcessRef, contents: Span) -> Result<(), InjectionError> {
    let unmapped = (|| {
        if !is_all(process, contents, is_empty)? {
            check(process, contents)?;
        }
        in_process(process, |proxy| make(proxy, &unmap_calls(contents)))
    })();
    unmapped.map_err(InjectionError::Hole)
}

/// Maps contents that begin at `offset` in a file, at their old addresses. Address and offset are
/// the same modulo 2 MiB, or else huge pages cannot be mapped as such.
///
/// A child that the process forks does not get the mapping, which is not locked into memory
/// (mlockall(2)).
///
/// # Errors
/// [`InjectionError::Hole`]: these addresses have something else than a hole, or the file is too
/// short; or as [`Proxy::receive`] and mmap(2) (EACCES: a file that is shared has to be open for
/// writing). The hole stays.
pub fn map(
    process: &ProcessRef,
    contents: Span,
    file: &File,
    offset: u64,
    sharing: Sharing,
) -> Result<(), InjectionError> {
    let mapping = MapFile {
        contents,
        file,
        offset,
        sharing,
    };
    mapping.make(process).map_err(InjectionError::Hole)
}

/// Contents, and the file to map for them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MapFile<'a> {
    pub(crate) contents: Span,
    pub(crate) file: &'a File,
    pub(crate) offset: u64,
    pub(crate) sharing: Sharing,
}

impl MapFile<'_> {
    fn make(self, process: &ProcessRef) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        if length.saturating_sub(self.offset) < self.contents.length {
            return Err(io::Error::other("the file is shorter than the contents"));
        }
        // Rights come last, so a mapping with rights is complete.
        if self.is_mapped(process, *b"rw-")? {
            return Ok(());
        }
        if !is_all(process, self.contents, is_empty)? && !self.is_mapped(process, *b"---")? {
            return Err(io::Error::other(
                "there is something else at these addresses",
            ));
        }
        in_process(process, |proxy| {
            let inside = self.received(proxy)?;
            make(proxy, &self.calls(inside))
        })
    }

    /// Gives the file to the proxy, which alone has the descriptor.
    pub(crate) fn received(self, proxy: &mut Proxy) -> io::Result<u64> {
        mark(self.file)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let scratch = prepare::map(proxy, 0, PAGE, protection, flags)?;
        let received = proxy.receive(self.file.as_fd(), scratch);
        proxy.call(libc::SYS_munmap, &[scratch, PAGE])?;
        received
    }

    /// Keeps the proxy's descriptor open for no longer than needed: a process of the container that
    /// finds it in `/proc` has the file as well.
    ///
    /// In a process that locks all its memory, mmap(2) would get all pages, and copy private ones.
    /// So the mapping has no rights until it is unlocked.
    pub(crate) fn calls(self, inside: u64) -> [Call; 5] {
        let Span { start, length } = self.contents;
        let sharing = match self.sharing {
            Sharing::Shared => libc::MAP_SHARED,
            Sharing::Private => libc::MAP_PRIVATE | libc::MAP_NORESERVE,
        };
        let nothing = unsigned(libc::PROT_NONE);
        let everything = unsigned(libc::PROT_READ | libc::PROT_WRITE);
        let flags = unsigned(sharing | libc::MAP_FIXED);
        let stay = unsigned(libc::MADV_DONTFORK);
        [
            (
                libc::SYS_mmap,
                [start, length, nothing, flags, inside, self.offset],
            ),
            (libc::SYS_close, [inside, 0, 0, 0, 0, 0]),
            (libc::SYS_madvise, [start, length, stay, 0, 0, 0]),
            (libc::SYS_munlock, [start, length, 0, 0, 0, 0]),
            (libc::SYS_mprotect, [start, length, everything, 0, 0, 0]),
        ]
    }

    fn is_mapped(self, process: &ProcessRef, [read, write, execute]: [u8; 3]) -> io::Result<bool> {
        let shared = match self.sharing {
            Sharing::Shared => b's',
            Sharing::Private => b'p',
        };
        let file = self.file.metadata()?;
        let delta = self.contents.start.wrapping_sub(self.offset);
        is_all(process, self.contents, |mapping| {
            // Some file systems show another device there than stat(2): the file is asked.
            mapping.permissions == [read, write, execute, shared]
                && mapping.start.wrapping_sub(mapping.offset) == delta
                && mapping.inode == file.ino()
                && open_mapped(process.pid(), mapping)
                    .ok()
                    .flatten()
                    .and_then(|mapped| mapped.metadata().ok())
                    .is_some_and(|mapped| (mapped.dev(), mapped.ino()) == (file.dev(), file.ino()))
        })
    }
}

/// Maps addresses that reserve no memory, and unlocks them: nothing else can move locked memory.
pub(crate) fn unmap_calls(Span { start, length }: Span) -> [Call; 2] {
    let nothing = unsigned(libc::PROT_NONE);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    [
        (
            libc::SYS_mmap,
            [start, length, nothing, unsigned(flags), u64::MAX, 0],
        ),
        (libc::SYS_munlock, [start, length, 0, 0, 0, 0]),
    ]
}

fn is_empty(mapping: &Mapping<'_>) -> bool {
    mapping.permissions == *b"---p" && mapping.inode == 0 && mapping.path.is_empty()
}
