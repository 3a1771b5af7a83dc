//! The index: which chunk of which process is in which pack.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::{INDEX_FILE, ImageId, Pack, ProcessMemory, StoreError, Tier, codec, limits};

/// All memory of one checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// The checkpoint.
    pub image_id: ImageId,
    /// Where the packs lie.
    pub tier: Tier,
    /// The packs that are needed; places refer to this list.
    pub packs: Vec<Pack>,
    /// The processes.
    pub processes: Vec<ProcessMemory>,
}

impl Index {
    /// That of an image directory. `None`: there is none, so CRIU has all memory.
    ///
    /// # Errors
    /// [`StoreError`] for anything that this version did not write.
    pub fn read(image_dir: &Path) -> Result<Option<Self>, StoreError> {
        Self::read_file(&image_dir.join(INDEX_FILE))
    }

    pub(crate) fn read_file(path: &Path) -> Result<Option<Self>, StoreError> {
        let Some(file) = open(path)? else {
            return Ok(None);
        };
        let metadata = file.metadata().map_err(StoreError::io("read", path))?;
        if !metadata.is_file() {
            let path = path.to_owned();
            return Err(StoreError::NotAFile { path });
        }
        let too_large = |bytes| StoreError::TooLarge {
            path: path.to_owned(),
            bytes,
            limit: limits::INDEX_BYTES,
        };
        if metadata.len() > limits::INDEX_BYTES {
            return Err(too_large(metadata.len()));
        }
        let mut bytes = Vec::new();
        file.take(limits::INDEX_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(StoreError::io("read", path))?;
        if bytes.len() as u64 > limits::INDEX_BYTES {
            return Err(too_large(bytes.len() as u64));
        }
        codec::decode(&bytes, path).map(Some)
    }

    /// That of these bytes, which are checked in every way that needs no other file.
    ///
    /// # Errors
    /// [`StoreError`]; it names [`INDEX_FILE`].
    pub fn decode(bytes: &[u8]) -> Result<Self, StoreError> {
        codec::decode(bytes, Path::new(INDEX_FILE))
    }

    /// What [`Self::decode`] reads.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        codec::encode(self)
    }

    /// The stored bytes that its chunks refer to, each time that they do.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.areas()
            .flat_map(|area| &area.chunks)
            .map(|chunk| u64::from(chunk.place.bytes))
            .sum()
    }

    /// Whether CRIU has all memory although the plugin was there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.areas().next().is_none()
    }

    /// All areas of all processes.
    pub fn areas(&self) -> impl Iterator<Item = &crate::Area> {
        self.processes.iter().flat_map(|process| &process.areas)
    }
}

/// A file that may be anything, without following links or waiting for a writer.
pub(crate) fn open(path: &Path) -> Result<Option<File>, StoreError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => Ok(Some(file.into())),
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::LOOP) => Err(StoreError::NotAFile {
            path: path.to_owned(),
        }),
        Err(error) => Err(StoreError::io("open", path)(error.into())),
    }
}

#[cfg(test)]
pub(crate) mod tests;
