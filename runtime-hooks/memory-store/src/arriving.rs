//! An image that arrives from elsewhere: it has CRIU's files and the index, and its packs grow.
//!
//! A file in its directory marks it, and is held locked by the process that fetches. A pack is
//! complete up to its length: contents are written in their order. The file's last line has the
//! result, and after a success the file is removed: readers that have it open still see the result.
//! Another try makes another file, so no reader mixes its contents with those of the earlier one.

mod fetching;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use stasis_linux::file;

use crate::StoreError;
use crate::pack::read_at;
pub use fetching::Fetching;

/// The file, in the image directory.
pub const ARRIVING_FILE: &str = "stasis-arriving";
const MAX_BYTES: usize = 64 << 10;
/// Characters of a line, so that all lines are read.
const MOST_LINE: usize = 8 << 10;
const WHOLE: &str = "whole";
const FAILED: &str = "failed ";
/// Time between two looks at the progress.
const POLL: Duration = Duration::from_millis(5);

/// The fetched image: the first line of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// Its name elsewhere.
    pub reference: String,
    /// Digest of its manifest there.
    pub digest: String,
}

/// Progress of an image that arrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrived {
    /// A process fetches the image.
    UnderWay,
    /// All of the image has arrived, and matches its digests.
    Whole,
    /// No process fetches the image any more, for this reason.
    CutOff(String),
}

/// An image that arrives, as its reader sees it.
#[derive(Debug)]
pub struct Arriving {
    image: PathBuf,
    file: File,
}

impl Arriving {
    /// Looks for one in an image directory; `None`: the image is complete, if there is one.
    pub fn find(image: &Path) -> Result<Option<Self>, StoreError> {
        let path = image.join(ARRIVING_FILE);
        let file = file::open(&path).map_err(StoreError::io("open", &path))?;
        let image = image.to_owned();
        Ok(file.map(|file| Self { image, file }))
    }

    /// Reads which image is fetched.
    pub fn fetched(&self) -> Result<Fetched, StoreError> {
        let text = self.text()?;
        let first = text.lines().next().and_then(|line| line.split_once(' '));
        let (digest, reference) = first.ok_or_else(|| {
            let what = "it does not say what is fetched";
            StoreError::damaged(&self.path(), what)
        })?;
        Ok(Fetched {
            reference: reference.to_owned(),
            digest: digest.to_owned(),
        })
    }

    /// Returns the progress.
    pub fn arrived(&self) -> Result<Arrived, StoreError> {
        // The fetching process writes the result before it ends the lock.
        let is_fetched = is_locked(&self.file).map_err(StoreError::io("lock", &self.path()))?;
        let text = self.text()?;
        let last = text.lines().next_back().unwrap_or_default();
        Ok(match last.strip_prefix(FAILED) {
            Some(why) => Arrived::CutOff(why.to_owned()),
            None if last == WHOLE => Arrived::Whole,
            None if is_fetched => Arrived::UnderWay,
            None => Arrived::CutOff("the process that fetched it has ended".to_owned()),
        })
    }

    /// Waits until all of the image has arrived and matches its digests.
    ///
    /// # Errors
    /// [`StoreError::CutOff`]: it will not arrive. [`StoreError::Arriving`]: `is_over` reports that
    /// the caller waits no longer.
    pub fn until_whole(&self, is_over: impl Fn() -> bool) -> Result<(), StoreError> {
        loop {
            match self.arrived()? {
                Arrived::Whole => return Ok(()),
                Arrived::CutOff(why) => return Err(self.cut_off(why)),
                Arrived::UnderWay if is_over() => return Err(self.under_way()),
                Arrived::UnderWay => sleep(POLL),
            }
        }
    }

    /// Waits until the first `bytes` of a pack have arrived.
    pub(crate) fn until(&self, pack: &File, bytes: u64) -> Result<(), StoreError> {
        loop {
            // Read before the length: bytes in the pack count, however the fetching has ended.
            let arrived = self.arrived()?;
            let length = pack.metadata();
            let length = length.map_err(StoreError::io("read", &self.image))?.len();
            match arrived {
                _ if length >= bytes => return Ok(()),
                Arrived::UnderWay => sleep(POLL),
                // The reader finds that the pack is too short.
                Arrived::Whole => return Ok(()),
                Arrived::CutOff(why) => return Err(self.cut_off(why)),
            }
        }
    }

    /// The error for a caller that does not wait for the rest of the image.
    pub fn under_way(&self) -> StoreError {
        let image = self.image.clone();
        StoreError::Arriving { image }
    }

    pub(crate) fn cut_off(&self, why: String) -> StoreError {
        let image = self.image.clone();
        StoreError::CutOff { image, why }
    }

    fn path(&self) -> PathBuf {
        self.image.join(ARRIVING_FILE)
    }

    fn text(&self) -> Result<String, StoreError> {
        let mut text = vec![0; MAX_BYTES];
        let length = read_at(&self.file, 0, &mut text);
        let length = length.map_err(StoreError::io("read", &self.path()))?;
        text.truncate(length);
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

/// Refuses an image that is still arriving: for callers that do not wait for it.
pub fn refuse_arriving(image: &Path) -> Result<(), StoreError> {
    let Some(arriving) = Arriving::find(image)? else {
        return Ok(());
    };
    arriving.until_whole(|| true)
}

/// Whether a process has a file locked.
fn is_locked(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => {
            flock(file, FlockOperation::Unlock)?;
            Ok(false)
        }
        Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests;
