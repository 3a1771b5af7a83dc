//! The files of an image, read with limits: each of them, and all together.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use stasis_linux::file;

use super::ContentsError;
use crate::image::criu_file::Entries;

/// More than CRIU writes for the most processes that fit into a machine.
const MAX_FILES: u64 = 1_000_000;
/// An entry has some 20 to 2,000 bytes; those of memory are many for a fragmented heap.
const MAX_BYTES: u64 = 64 << 20;
/// The most for all files together: some 50 KiB for each of the most processes that are shown.
const MAX_ALL_BYTES: u64 = 1 << 30;

/// The files of an image directory.
#[derive(Debug)]
pub struct Files {
    directory: PathBuf,
    /// Each with its length.
    names: BTreeMap<String, u64>,
    /// The bytes that may still be read.
    left: Cell<u64>,
}

impl Files {
    /// Lists the files of an image directory.
    pub fn of(directory: &Path) -> Result<Self, ContentsError> {
        let failed = |source| ContentsError::Io {
            path: directory.to_owned(),
            source,
        };
        let mut names = BTreeMap::new();
        for (number, entry) in (0..).zip(fs::read_dir(directory).map_err(failed)?) {
            if number >= MAX_FILES {
                return Err(ContentsError::TooMuch {
                    path: directory.to_owned(),
                    what: "files",
                    most: MAX_FILES,
                });
            }
            let entry = entry.map_err(failed)?;
            let found = entry.metadata().map_err(failed)?;
            // CRIU and we give no names that are not UTF-8.
            if let Ok(name) = entry.file_name().into_string()
                && found.is_file()
            {
                names.insert(name, found.len());
            }
        }
        Ok(Self {
            directory: directory.to_owned(),
            names,
            left: Cell::new(MAX_ALL_BYTES),
        })
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.names.keys()
    }

    /// Reads a file; `None` if there is none of that name.
    ///
    /// # Errors
    /// [`ContentsError`], also for a file that is larger than any that is read.
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, ContentsError> {
        let Some(bytes) = self.names.get(name) else {
            return Ok(None);
        };
        self.spend(*bytes)?;
        let read = file::read(&self.path(name), MAX_BYTES);
        read.map_err(|source| self.failed(name, source))
    }

    /// Reads the entries of a file and hands each on; a missing file has none.
    pub(super) fn each<T: prost::Message + Default>(
        &self,
        name: &str,
        magic: u32,
        mut hand_on: impl FnMut(T),
    ) -> Result<(), ContentsError> {
        let Some(bytes) = self.read(name)? else {
            return Ok(());
        };
        let entries = Entries::of(&bytes, magic).map_err(|what| self.malformed(name, what))?;
        for entry in entries {
            hand_on(entry.map_err(|what| self.malformed(name, what))?);
        }
        Ok(())
    }

    fn malformed(&self, name: &str, what: String) -> ContentsError {
        ContentsError::Malformed {
            path: self.path(name),
            what,
        }
    }

    fn spend(&self, bytes: u64) -> Result<(), ContentsError> {
        let left = self.left.get().checked_sub(bytes);
        self.left.set(left.ok_or_else(|| ContentsError::TooMuch {
            path: self.directory.clone(),
            what: "bytes of CRIU's records",
            most: MAX_ALL_BYTES,
        })?);
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn failed(&self, name: &str, source: io::Error) -> ContentsError {
        ContentsError::Io {
            path: self.path(name),
            source,
        }
    }
}
