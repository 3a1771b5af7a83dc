//! The record of contents that are away from their processes, in the operation's directory.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;

use serde::{Deserialize, Serialize};
use stasis_linux::ProcessRef;
use stasis_linux::file::{self, Access, Durability};
use stasis_memory_store::ImageId;

use super::POLL;
use super::in_file::InFile;
use crate::cuda::process_set::as_found::ProcessId;
use crate::host::file_lock::lock_soon;

const RECORD: &str = "gpu-contents-away.json";
/// Whose lock says that somebody who lives gives them back.
const LOCK: &str = "gpu-contents-away.lock";
/// That somebody waits for the contents.
const WANTED: &str = "gpu-contents-away.wanted";
/// Contents of hundreds of thousands of processes.
const MAX_BYTES: u64 = 64 << 20;

/// What is away, and where it is stored.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Away {
    /// Where the image may be, since it may not be in its place yet.
    pub(super) places: Vec<PathBuf>,
    pub(super) image_id: ImageId,
    /// That of the packs, unless they are in the image.
    pub(super) store: Option<PathBuf>,
    pub(super) in_files: Vec<InFile>,
}

impl Away {
    pub(super) fn bytes(&self) -> u64 {
        self.in_files.iter().map(InFile::bytes).sum()
    }
}

/// A record of contents that are ours to give back.
#[derive(Debug)]
pub(super) struct HeldRecord {
    directory: PathBuf,
    _lock: File,
}

impl HeldRecord {
    /// Writes it. It need not outlive the machine, as the processes do not.
    pub(super) fn write(directory: &Path, away: &Away) -> io::Result<Self> {
        let lock = lock_of(directory)?;
        lock_soon(&lock)?;
        let text = serde_json::to_vec(away)?;
        let path = directory.join(RECORD);
        file::replace(&path, &text, Access::Private, Durability::Volatile)?;
        Ok(Self {
            directory: directory.to_owned(),
            _lock: lock,
        })
    }

    /// Waits until somebody wants the contents back, or nobody can have them any more.
    pub(super) fn until_wanted(&self, is_over: impl Fn() -> bool) {
        while !self.directory.join(WANTED).exists() && !is_over() {
            sleep(POLL);
        }
    }

    /// Nothing is away any more.
    pub(super) fn remove(&self) {
        remove(&self.directory);
    }
}

/// Asks who holds the contents, if anybody does, to give them back.
pub(super) fn want(directory: &Path) -> io::Result<()> {
    File::create(directory.join(WANTED)).map(drop)
}

/// The file whose lock the holder has.
pub(super) fn lock_of(directory: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true);
    options.open(directory.join(LOCK))
}

/// What is recorded.
pub(super) fn read(directory: &Path) -> io::Result<Option<Away>> {
    let text = file::read(&directory.join(RECORD), MAX_BYTES)?;
    Ok(text.map(|text| serde_json::from_slice(&text)).transpose()?)
}

/// Removes the record and its lock.
pub(super) fn remove(directory: &Path) {
    for name in [RECORD, WANTED, LOCK] {
        // A record that is left is found to say nothing new.
        let _ = fs::remove_file(directory.join(name));
    }
}

/// Whether contents of any process may be away.
pub(crate) fn are_away(directory: &Path) -> bool {
    directory.join(RECORD).exists()
}

/// Whether contents of a process may be away from it. A record that cannot be read may be of any.
pub(in crate::gpu_path) fn is_away(directory: &Path, process: &ProcessRef) -> bool {
    let id = ProcessId::of(process);
    match read(directory) {
        Ok(None) => false,
        Ok(Some(away)) => away.in_files.iter().any(|in_file| in_file.process == id),
        Err(_) => true,
    }
}
