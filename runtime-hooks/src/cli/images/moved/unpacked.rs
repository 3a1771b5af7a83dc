//! An engine's archive, unpacked for as long as it is pushed.

use std::collections::BTreeSet;
use std::path::Path;

use stasis_linux::file;
use stasis_oci_image::archive;

use super::beside::Beside;
use super::engine::CHECKPOINT;
use crate::cli::command_error::MoveError;

const ENDING: &str = ".stasis-push";

/// What was in the archive, until it is dropped.
#[derive(Debug)]
pub(super) struct Unpacked(Beside);

impl Unpacked {
    /// Unpacks an archive beside it; if that fails, nothing is left.
    pub(super) fn of(named: &Path) -> Result<Self, MoveError> {
        let from = file::open(named).map_err(MoveError::io("open", named))?;
        let from = from.ok_or_else(|| MoveError::NoArchive(named.to_owned()))?;
        let unpacked = Self(Beside::begin(named, ENDING)?);
        unpacked.0.keep_only(&BTreeSet::<&str>::new())?;
        let done = archive::unpack(from, unpacked.path(), u64::MAX);
        done.map_err(MoveError::io("unpack the archive", named))?;
        match unpacked.path().join(CHECKPOINT).is_dir() {
            true => Ok(unpacked),
            false => Err(MoveError::NoArchive(named.to_owned())),
        }
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        self.0.leave(&BTreeSet::<&str>::new());
    }
}
