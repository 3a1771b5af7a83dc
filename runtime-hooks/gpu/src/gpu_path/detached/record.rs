//! The record of contents that are detached from their processes, in the operation's directory.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stasis_host::file_lock::{Sharing, Tried, is_held, lock_soon, try_lock};
use stasis_host::json_record;
use stasis_memory_store::ImageId;

use super::POLL;
use super::in_file::InFile;

const RECORD: &str = "gpu-contents-away.json";
/// A lock that a living process holds which gives the contents back.
const LOCK: &str = "gpu-contents-away.lock";
/// A file that exists while a process waits for the contents.
const WANTED: &str = "gpu-contents-away.wanted";
/// The contents of hundreds of thousands of processes.
const MAX_BYTES: u64 = 64 << 20;

/// Contents that are detached, and their store.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Detached {
    /// Directories where the image may be, since it may not be in its place yet.
    pub(super) places: Vec<PathBuf>,
    pub(super) image_id: ImageId,
    /// The directory of the packs, unless they are in the image.
    pub(super) store: Option<PathBuf>,
    pub(super) in_files: Vec<InFile>,
}

impl Detached {
    pub(super) fn bytes(&self) -> u64 {
        self.in_files.iter().map(InFile::bytes).sum()
    }
}

/// A record of contents that this process gives back.
#[derive(Debug)]
pub(super) struct HeldRecord {
    directory: PathBuf,
    image_id: ImageId,
    lock: File,
}

impl HeldRecord {
    /// Writes the record. It need not outlive the machine, as the processes do not.
    pub(super) fn write(directory: &Path, detached: &Detached) -> io::Result<Self> {
        let lock = lock_of(directory)?;
        lock_soon(&lock)?;
        // A wish for contents that were detached before.
        let _ = fs::remove_file(directory.join(WANTED));
        json_record::write(&directory.join(RECORD), detached)?;
        Ok(Self::of(directory, detached.image_id, lock))
    }

    /// Makes the record of these contents, with its lock.
    pub(super) fn of(directory: &Path, image_id: ImageId, lock: File) -> Self {
        Self {
            directory: directory.to_owned(),
            image_id,
            lock,
        }
    }

    /// Whether the record exists: another checkpoint may have written its own.
    pub(super) fn is_there(&self) -> io::Result<bool> {
        let detached = read(&self.directory)?;
        Ok(detached.is_some_and(|detached| detached.image_id == self.image_id))
    }

    /// The operation's directory.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Id of the image that the contents belong to.
    pub(super) fn image_id(&self) -> ImageId {
        self.image_id
    }

    /// The lock's file: each process that has it open holds the lock.
    pub(super) fn lock(&self) -> &File {
        &self.lock
    }

    /// Waits until another process wants the contents back, or `is_over`.
    pub(super) fn until_wanted(&self, is_over: impl Fn() -> bool) {
        while !self.directory.join(WANTED).exists() && !is_over() {
            sleep(POLL);
        }
    }

    /// Removes the wish after a failure to give back: a waiting process makes it again.
    pub(super) fn not_given(&self) {
        let _ = fs::remove_file(self.directory.join(WANTED));
        sleep(POLL);
    }

    /// Removes the record: nothing is detached any more.
    pub(super) fn remove(&self) {
        remove(&self.directory);
    }
}

/// Asks the processes that hold the contents, if any, to give them back, until they have ended,
/// which they do when all contents are back. A holder that does not end has not given them back.
pub(super) fn want(directory: &Path, limit: Duration) -> io::Result<File> {
    let lock = lock_of(directory)?;
    let began = Instant::now();
    loop {
        File::create(directory.join(WANTED))?;
        if let Tried::Locked = try_lock(&lock, Sharing::Exclusive)? {
            return Ok(lock);
        }
        if began.elapsed() > limit {
            let limit = limit.as_secs();
            let held = format!("who holds them has not given them back within {limit} s");
            return Err(io::Error::new(io::ErrorKind::TimedOut, held));
        }
        sleep(POLL);
    }
}

/// Whether a living process holds the contents, or may.
pub(super) fn are_held(directory: &Path) -> bool {
    is_held(&directory.join(LOCK), Sharing::Shared).unwrap_or(true)
}

/// Opens the file that the holder has locked.
fn lock_of(directory: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true);
    options.open(directory.join(LOCK))
}

/// Reads the record.
pub(super) fn read(directory: &Path) -> io::Result<Option<Detached>> {
    json_record::read(&directory.join(RECORD), MAX_BYTES)
}

/// Returns the directories that have a copy of contents which an operation, whose directory this
/// is, has detached: those of their image, and of its packs apart from it.
pub fn kept_in(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let detached = read(directory)?;
    let kept = detached.map(|detached| detached.places.into_iter().chain(detached.store));
    Ok(kept.into_iter().flatten().collect())
}

/// Removes the record and its lock.
pub(super) fn remove(directory: &Path) {
    for name in [RECORD, WANTED, LOCK] {
        // A record that is left has nothing new.
        let _ = fs::remove_file(directory.join(name));
    }
}

/// Whether contents of any process may be detached.
pub fn are_detached(directory: &Path) -> bool {
    directory.join(RECORD).exists()
}
