//! An engine's archive, which has an image and the engine's files beside it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use stasis_linux::file;

use crate::archive;
use crate::archive::CHECKPOINT;
use crate::error::MoveError;
use crate::local::beside::Beside;

/// The ending of the directory beside an archive with its unpacked files.
const ENDING: &str = ".stasis-unpacked";

/// The unpacked files of an engine's archive, which are removed when it is dropped.
#[derive(Debug)]
pub struct Unpacked(Beside);

impl Unpacked {
    /// Unpacks an archive beside it; if that fails, nothing is left.
    ///
    /// # Errors
    /// [`MoveError`]: the file is no archive, there is no room, or another command has it.
    pub fn of(named: &Path) -> Result<Self, MoveError> {
        let from = file::open(named).map_err(MoveError::io("open", named))?;
        let from = from.ok_or_else(|| MoveError::NoArchive(named.to_owned()))?;
        let unpacked = Self(Beside::begin(named, ENDING)?);
        unpacked.0.keep_only(&BTreeSet::<&str>::new())?;
        let done = archive::unpack(from, unpacked.path(), u64::MAX);
        done.map_err(MoveError::io("unpack the archive", named))?;
        match unpacked.image().is_dir() {
            true => Ok(unpacked),
            false => Err(MoveError::NoArchive(named.to_owned())),
        }
    }

    /// Returns the directory.
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns the image's directory.
    pub fn image(&self) -> PathBuf {
        self.path().join(CHECKPOINT)
    }
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        self.0.leave(&BTreeSet::<&str>::new());
    }
}
