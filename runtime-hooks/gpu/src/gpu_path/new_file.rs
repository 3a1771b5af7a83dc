//! Files that GPU contents go into.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stasis_host::lent::Lent;
use stasis_linux::file_system::detached::DetachedMount;
use stasis_linux::memory_file::{self, Clearing};
use stasis_linux::numa::NumaNode;
use stasis_memory_store::{EarlyChecksums, IN_PLACE_OFFSET, ImageId, Pack, create_pack};

/// All threads clear a file for so long before its process is locked: 16 GiB on an H200's machine.
/// Then one of four continues, and is ahead of the driver. That was the fastest way for 64 GiB:
/// with more the workers lack CPUs, fewer are too slow (docs/internals/benchmarks.md, "Clearing
/// the file").
///
/// A process with fewer threads than four is one of many. The driver makes and ends their contexts
/// one after the other, and clearing need not be ahead of that: all threads clear beside it.
const HEAD_START: Duration = Duration::from_millis(300);
const ONE_OF: usize = 4;

/// The sort of files for contents.
#[derive(Debug, Clone)]
pub enum NewFiles {
    /// The files have no name, and each ends with its last mapping.
    Nameless,
    /// Packs of the store that a checkpoint makes in memory. Processes get them through this mount,
    /// which the process that holds them makes read-only.
    Packs {
        /// The directory of the store.
        directory: PathBuf,
        /// The id of the image.
        id: ImageId,
        /// The mount.
        mount: Arc<DetachedMount>,
    },
}

/// A file for the contents of one process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum NewFile {
    Nameless,
    Pack {
        /// The directory of the store.
        directory: PathBuf,
        /// The id of the image.
        id: ImageId,
        number: u16,
        mount: Lent,
    },
}

/// A file with memory for contents.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) file: File,
    /// Offset of the contents.
    pub(super) offset: u64,
    clearing: Clearing,
    /// The sort of the file, and the bytes of contents that it is for.
    of: NewFile,
    pub(super) bytes: u64,
}

impl NewFiles {
    /// Returns the file of the process with this number.
    ///
    /// # Errors
    /// A store has no more packs.
    pub(super) fn file(&self, number: usize) -> io::Result<NewFile> {
        Ok(match self {
            Self::Nameless => NewFile::Nameless,
            Self::Packs {
                directory,
                id,
                mount,
            } => NewFile::Pack {
                directory: directory.clone(),
                id: *id,
                number: u16::try_from(number).map_err(io::Error::other)?,
                mount: Lent::of(mount.as_fd())?,
            },
        })
    }
}

impl NewFile {
    /// Makes the file, of the memory of this node as long as that has some, and has so many threads
    /// clear it: most of it at once, and the rest beside the driver's copying.
    pub(super) fn make(
        &self,
        bytes: u64,
        threads: NonZeroUsize,
        near: Option<NumaNode>,
    ) -> io::Result<Made> {
        let (file, offset) = match self {
            Self::Nameless => (memory_file::create(bytes)?, 0),
            Self::Pack {
                directory,
                id,
                number,
                mount,
            } => {
                let mount = DetachedMount::from(mount.take()?);
                let pack = create_pack(directory, *id, *number, bytes);
                pack.map_err(io::Error::other)?;
                let name = pack_name(*id, *number);
                (mount.open_to_write(name.as_ref())?, IN_PLACE_OFFSET)
            }
        };
        let allocate = || memory_file::allocate(&file, offset + bytes);
        near.map_or_else(allocate, |node| node.near(allocate))?;
        let clearing = Clearing::start(&file, offset + bytes, threads)?;
        if threads.get() >= ONE_OF {
            let _ = clearing.ends_within(HEAD_START);
            clearing.limit_threads(threads.get() / ONE_OF);
        }
        Ok(Made {
            file,
            offset,
            clearing,
            of: self.clone(),
            bytes,
        })
    }
}

fn pack_name(creator: ImageId, stream: u16) -> String {
    let pack = Pack {
        creator,
        stream,
        bytes: 0,
    };
    pack.file_name()
}

impl Made {
    /// Returns how many threads of ours still clear the file.
    pub(super) fn threads(&self) -> usize {
        self.clearing.threads()
    }

    /// Whether the contents stay in the file.
    pub(super) fn is_pack(&self) -> bool {
        matches!(self.of, NewFile::Pack { .. })
    }

    /// Leaves the checksums of the first `filled` bytes to the process that stores the contents.
    /// Without them the contents are checksummed then.
    pub(super) fn leave_checksums(&self, checksums: &EarlyChecksums, filled: u64) {
        if let NewFile::Pack {
            directory,
            id,
            number,
            ..
        } = &self.of
        {
            let _ = checksums.leave(filled, directory, *id, *number);
        }
    }

    /// Ends clearing once the contents, of so many bytes, are in the file. The driver asks for less
    /// than it might: the rest goes back to the machine.
    pub(super) fn done(self, bytes: u64) {
        drop(self.clearing);
        let _ = self.file.set_len(self.offset + bytes);
    }

    /// Frees a file into which the driver has put nothing, or whose process has ended, also if a
    /// process has kept the file open. A pack is removed with its store.
    pub(super) fn unused(self) {
        drop(self.clearing);
        if let NewFile::Nameless = self.of {
            let _ = self.file.set_len(0);
        }
    }
}
