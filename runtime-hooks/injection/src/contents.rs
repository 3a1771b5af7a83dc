//! Finds the GPU contents of a checkpointed process, if they are in a file of ours.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use serde::{Deserialize, Serialize};
use stasis_linux::ProcessRef;
use stasis_linux::memory_file::{NAME, PACK_PREFIX, PACK_SUFFIX, is_marked};
use stasis_linux::procfs::{Mapping, for_each_mapping, open_mapped};

use crate::record::Span;

/// Finds the mappings of files of ours in a process, without any record. The files are in memory
/// ([`stasis_linux::memory_file`]), or packs of the store: of a checkpoint under way, or of an
/// image. Any process can give a file such a name, but only we can mark it. A process that has
/// ended has no mappings.
///
/// # Errors
/// An error of reading `/proc/PID/maps`, or of opening a file that has such a name.
pub fn contents_of(process: &ProcessRef) -> io::Result<Vec<Span>> {
    let mut found: Vec<Piece> = Vec::new();
    let failed = for_each_mapping(process.pid(), |mapping| {
        let Some(piece) = Piece::of(&mapping) else {
            return ControlFlow::Continue(());
        };
        if let Some(last) = found.last_mut().filter(|last| last.goes_on_with(&piece)) {
            // A mapping is in pieces where advice or locks differ (madvise(2), mlock(2)).
            last.span.length += piece.span.length;
            return ControlFlow::Continue(());
        }
        match is_ours(process.pid(), &mapping) {
            Ok(true) => found.push(piece),
            Ok(false) => {}
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    })?;
    if process.is_gone() {
        return Ok(Vec::new());
    }
    failed.map_or(Ok(()), Err)?;
    Ok(found.into_iter().map(|piece| piece.span).collect())
}

/// Whether the file behind a mapping is marked as ours.
fn is_ours(pid: i32, mapping: &Mapping<'_>) -> io::Result<bool> {
    opened(pid, mapping)?.map_or(Ok(false), |file| is_marked(&file))
}

/// The file behind a mapping, if it may be ours.
fn opened(pid: i32, mapping: &Mapping<'_>) -> io::Result<Option<File>> {
    open_mapped(pid, mapping).or_else(|error| match error.kind() {
        // A device, or a file that its file system lets no process of the machine open.
        io::ErrorKind::InvalidData | io::ErrorKind::PermissionDenied => Ok(None),
        _ => Err(error),
    })
}

/// Mapping type of the contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sharing {
    /// Writes go to the file.
    Shared,
    /// Writes stay in the process. The file may be open for reading only, and be mapped by many.
    Private,
}

/// The file that has the contents of a process.
#[derive(Debug)]
pub struct ContentsFile {
    /// Open for writing as well, unless it is [`Sharing::Private`].
    pub file: File,
    /// Where the contents begin in the file.
    pub offset: u64,
    /// How it is to be mapped again: a pack of the store belongs to images, too.
    pub sharing: Sharing,
}

/// Opens the file that has the contents of a process.
///
/// # Errors
/// The process has no contents there, or an error of opening the file.
pub fn file_of(process: &ProcessRef, contents: Span) -> io::Result<ContentsFile> {
    check(process, contents)?;
    let found = for_each_mapping(process.pid(), |mapping| match mapping.start {
        start if start < contents.start => ControlFlow::Continue(()),
        _ => ControlFlow::Break(open_mapped(process.pid(), &mapping).map(|opened| {
            let file = opened.filter(|_| mapping.start == contents.start);
            file.map(|file| (file, mapping.offset, is_pack(&mapping)))
        })),
    })?;
    let (file, offset, is_pack) = found.transpose()?.flatten().ok_or_else(no_contents)?;
    // Checked after all was opened, since the pid may have been given to another process before it.
    if process.is_gone() {
        return Err(no_contents());
    }
    let mut options = OpenOptions::new();
    options.read(true).write(!is_pack);
    Ok(ContentsFile {
        file: anew(&file, &options)?,
        offset,
        sharing: match is_pack {
            true => Sharing::Private,
            false => Sharing::Shared,
        },
    })
}

/// Opens the nameless files that have contents of a process, for writing: the caller can free their
/// memory once the contents are consumed, whichever process has kept a mapping or a descriptor.
/// Packs of the store are left out.
///
/// # Errors
/// As [`contents_of`]; no such file could be opened.
pub fn own_files_of(process: &ProcessRef) -> io::Result<Vec<File>> {
    let (mut seen, mut found) = (BTreeSet::new(), Vec::new());
    let mut failed = None;
    for_each_mapping(process.pid(), |mapping| {
        let place = (mapping.device.to_owned(), mapping.inode);
        if is_nameless(&mapping) && !seen.contains(&place) {
            match own_file(process.pid(), &mapping) {
                Ok(Some(own)) => {
                    found.push(own);
                    seen.insert(place);
                }
                // A file that a process maps beside, or changes meanwhile, hides no other.
                Ok(None) => {}
                Err(error) => failed = failed.take().or(Some(error)),
            }
        }
        ControlFlow::<()>::Continue(())
    })?;
    // Checked after all was opened, since the pid may have been given to another process before it.
    if process.is_gone() {
        return Ok(Vec::new());
    }
    match failed {
        Some(error) if found.is_empty() => Err(error),
        _ => Ok(found),
    }
}

/// Opens a file for writing only if it is marked by us and has no name: by now the process may have
/// mapped any file there.
fn own_file(pid: i32, mapping: &Mapping<'_>) -> io::Result<Option<File>> {
    let Some(file) = opened(pid, mapping)? else {
        return Ok(None);
    };
    if file.metadata()?.nlink() > 0 || !is_marked(&file)? {
        return Ok(None);
    }
    let mut options = OpenOptions::new();
    options.write(true);
    anew(&file, &options).map(Some)
}

fn anew(file: &File, options: &OpenOptions) -> io::Result<File> {
    options.open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Checks that the process has contents at exactly these addresses.
pub(crate) fn check(process: &ProcessRef, contents: Span) -> io::Result<()> {
    if contents_of(process)?.contains(&contents) {
        return Ok(());
    }
    Err(no_contents())
}

fn no_contents() -> io::Error {
    io::Error::other("it has no GPU contents at these addresses")
}

/// A mapping of a part of a file that has a name of ours.
#[derive(Debug)]
struct Piece {
    span: Span,
    device: Vec<u8>,
    inode: u64,
    offset: u64,
}

impl Piece {
    fn of(mapping: &Mapping<'_>) -> Option<Self> {
        // A tmpfs has no device: its major number is 0.
        let is_contents = mapping.device.starts_with(b"00:")
            && (is_nameless(mapping) || is_pack(mapping))
            && mapping.permissions.starts_with(b"rw-");
        is_contents.then(|| Self {
            span: Span {
                start: mapping.start,
                length: mapping.length(),
            },
            device: mapping.device.to_owned(),
            inode: mapping.inode,
            offset: mapping.offset,
        })
    }

    fn goes_on_with(&self, next: &Self) -> bool {
        self.span.start + self.span.length == next.span.start
            && self.offset + self.span.length == next.offset
            && (&self.device, self.inode) == (&next.device, next.inode)
    }
}

/// Whether the mapping's name is that of our files in memory.
fn is_nameless(mapping: &Mapping<'_>) -> bool {
    let name = mapping.path.strip_prefix(b"/");
    let name = name.and_then(|path| path.strip_suffix(b" (deleted)"));
    name == Some(NAME.as_bytes()) && mapping.permissions.ends_with(b"s")
}

/// Whether the mapping's name is that of a pack of the store, which may have been removed since.
fn is_pack(mapping: &Mapping<'_>) -> bool {
    let path = mapping.path;
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    name.starts_with(PACK_PREFIX.as_bytes()) && name.ends_with(PACK_SUFFIX.as_bytes())
}
