//! A pack is a file of chunk contents: its name, its header, and reading it, from a mapping or past
//! the page cache.
//!
//! [`writer`] makes packs, with contents that [`compress`] may have made smaller.

pub(crate) mod compress;
pub(crate) mod mapping;
pub(crate) mod page_cache;
pub(crate) mod writer;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use borsh::{BorshDeserialize, BorshSerialize};
use memmap2::Mmap;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use stasis_linux::file;
use stasis_linux::file_system::detached::DetachedMount;
use stasis_linux::memory_file::{PACK_PREFIX, PACK_SUFFIX, mark};

use crate::chunk::buffer::Aligned;
use crate::index::codec::written;
use crate::{ImageId, PAGE, PacksIn, StoreError};

const MAGIC: &[u8; 8] = b"STASISMP";
const VERSION: u32 = 1;
/// Suffix behind the name of a pack ([`beside`]).
const BESIDE_SUFFIX: &str = ".checksums";

/// A pack, as an index describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, BorshSerialize, BorshDeserialize)]
pub struct Pack {
    /// The checkpoint that wrote the pack, or the beginning of its blob's digest.
    pub creator: ImageId,
    /// Number of the pack among those of the checkpoint.
    pub stream: u16,
    /// Length in bytes.
    pub bytes: u64,
}

impl Pack {
    /// A pack that is still to be written.
    pub(crate) fn new(creator: ImageId, stream: u16) -> Self {
        Self {
            creator,
            stream,
            bytes: 0,
        }
    }

    /// The name of the pack's file.
    pub fn file_name(&self) -> String {
        let Self {
            creator, stream, ..
        } = self;
        format!("{PACK_PREFIX}{creator}-{stream}{PACK_SUFFIX}")
    }

    /// The pack whose file has this name and length; `None`: the name is not a pack's.
    pub(crate) fn of_name(name: &str, bytes: u64) -> Option<Self> {
        let name = name.strip_prefix(PACK_PREFIX)?.strip_suffix(PACK_SUFFIX)?;
        let (creator, number) = name.split_once('-')?;
        let stream: u16 = number.parse().ok()?;
        (stream.to_string() == number).then_some(Self {
            creator: creator.parse().ok()?,
            stream,
            bytes,
        })
    }

    /// The first page of the pack.
    pub(crate) fn header(&self) -> Aligned {
        let mut page = Aligned::new(PAGE);
        let fields = written(&(*MAGIC, VERSION, u32::from(self.stream), self.creator));
        page.as_mut_slice()[..fields.len()].copy_from_slice(&fields);
        page
    }
}

/// Rounds a length in a pack up to whole pages.
pub(crate) fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE)
}

/// Whether a file of this name is a pack.
#[must_use]
pub fn is_pack_name(name: &str) -> bool {
    Pack::of_name(name, 0).is_some()
}

/// The file that may lie beside a pack while a checkpoint is made: checksums of its contents.
pub(crate) fn beside(pack: &Path) -> PathBuf {
    let mut path = pack.as_os_str().to_owned();
    path.push(BESIDE_SUFFIX);
    path.into()
}

/// Whether a file of this name is a pack, or lies beside one.
pub(crate) fn is_of_pack(name: &str) -> bool {
    is_pack_name(name.strip_suffix(BESIDE_SUFFIX).unwrap_or(name))
}

/// A pack that can be read.
#[derive(Debug)]
pub(crate) struct PackFile {
    pub(crate) path: PathBuf,
    pub(crate) file: File,
    /// The whole file, if it is mapped.
    pub(crate) mapped: Option<Mmap>,
}

impl PackFile {
    /// Makes one that is not mapped.
    pub(crate) fn new(path: PathBuf, file: File) -> Self {
        Self {
            path,
            file,
            mapped: None,
        }
    }

    /// Opens a pack in a directory, and checks its header and that it is as long as the index
    /// needs.
    pub(crate) fn open(directory: &Path, pack: &Pack) -> Result<Self, StoreError> {
        let file = Self::open_growing(directory, pack)?;
        let there = file.file.metadata();
        let there = there.map_err(StoreError::io("read", &file.path))?.len();
        if there < pack.bytes {
            let needed = pack.bytes;
            let what = format!("{needed} bytes of it are needed and it has {there}");
            return Err(StoreError::damaged(&file.path, what));
        }
        Ok(file)
    }

    /// Opens a pack that may still be growing.
    pub(crate) fn open_growing(directory: &Path, pack: &Pack) -> Result<Self, StoreError> {
        let path = directory.join(pack.file_name());
        let Some(file) = file::open(&path).map_err(StoreError::io("open", &path))? else {
            return Err(StoreError::Missing { path });
        };
        let pack_file = Self::new(path, file);
        pack_file.check_header(pack)?;
        Ok(pack_file)
    }

    /// Opens the pack anew through a read-only mount: its receiver may open it by a path in
    /// `/proc`, with the rights of root. The mark is set through the pack's own mount, which is
    /// writable.
    pub(crate) fn for_others(&self) -> io::Result<File> {
        mark(&self.file)?;
        let (directory, name) = (self.path.parent(), self.path.file_name());
        let (Some(directory), Some(name)) = (directory, name) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        DetachedMount::read_only(directory)?.open(name)
    }

    /// Chooses how the pack is read from now on: mapped, if it is in memory and apart from an
    /// image; with O_DIRECT, if it is not in the page cache and its file system can do that; else
    /// through the page cache.
    pub(crate) fn read_fast(&mut self, packs_in: PacksIn) {
        match packs_in {
            PacksIn::Directory => self.mapped = mapping::map(&self.file),
            PacksIn::Image => {}
        }
        if self.mapped.is_none() {
            self.read_directly_if_cold();
        }
    }

    fn check_header(&self, pack: &Pack) -> Result<(), StoreError> {
        let mut page = Aligned::new(PAGE);
        let read = self.read_at(0, page.as_mut_slice());
        let read = read.map_err(StoreError::io("read", &self.path))?;
        let (found, expected) = (page.as_slice(), pack.header());
        if read < PAGE || !found.starts_with(MAGIC) {
            let what = "it is not a pack of chunks";
            return Err(StoreError::damaged(&self.path, what));
        }
        let version = found[8..]
            .first_chunk()
            .map_or(0, |v| u32::from_le_bytes(*v));
        if version != VERSION {
            return Err(StoreError::Version {
                path: self.path.clone(),
                found: version,
                known: VERSION,
            });
        }
        if found != expected.as_slice() {
            let what = "its header has the name of another pack, or is damaged itself";
            return Err(StoreError::damaged(&self.path, what));
        }
        Ok(())
    }

    /// Returns a part of the pack, if it is mapped.
    pub(crate) fn mapped(&self, offset: u64, bytes: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset).ok()?;
        self.mapped.as_ref()?.get(start..start.checked_add(bytes)?)
    }

    /// Reads from an offset on, up to the end of the file.
    pub(crate) fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        read_at(&self.file, offset, into)
    }

    /// Reads with O_DIRECT from now on, if the pack is not in the page cache and its file system
    /// can do that.
    pub(crate) fn read_directly_if_cold(&self) {
        if page_cache::has_most_of(&self.file) == Some(false) {
            self.read_directly();
        }
    }

    /// Reads with O_DIRECT from now on, if its file system can do that.
    pub(crate) fn read_directly(&self) {
        if !set_direct(&self.file) {
            return;
        }
        let mut page = Aligned::new(PAGE);
        if self.read_at(0, page.as_mut_slice()).is_err() {
            set_buffered(&self.file);
        }
    }
}

/// Reads a file from an offset on, up to its end.
pub(crate) fn read_at(file: &File, offset: u64, into: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    while read < into.len() {
        match file.read_at(&mut into[read..], offset + read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

/// Sets O_DIRECT. `false`: the file system does not support it.
pub(crate) fn set_direct(file: &File) -> bool {
    let flags = fcntl_getfl(file).map(|flags| flags | OFlags::DIRECT);
    flags.is_ok_and(|flags| fcntl_setfl(file, flags).is_ok())
}

/// Clears O_DIRECT. `false`: it was not set.
pub(crate) fn set_buffered(file: &File) -> bool {
    let flags = fcntl_getfl(file).unwrap_or(OFlags::empty());
    flags.contains(OFlags::DIRECT) && fcntl_setfl(file, flags - OFlags::DIRECT).is_ok()
}
