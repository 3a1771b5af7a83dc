//! The records of code that was put into processes, in a directory of the operation's.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stasis_host::file_lock::{Sharing, lock_soon, lock_within};
use stasis_host::json_record;
use stasis_injection::survey::{Removed, VisitRecord, remove};
use stasis_injection::{PutBack, Record, put_back};
use stasis_linux::ProcessRef;
use stasis_linux::file;

use crate::cuda::process_set::initial_state::ProcessId;

/// The name of the directory, in that of an operation.
pub(super) const DIRECTORY: &str = "gpu-copies";
/// Suffix of the lock that a living process holds which puts the process of the record back.
const LOCK: &str = "lock";
/// Far more than a record has.
const MAX_BYTES: u64 = 64 << 10;
/// The copying process puts everything back when its operation ends, unless a worker or the program
/// does not stop.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Serialize, Deserialize)]
struct Recorded {
    process: ProcessId,
    record: Injected,
}

/// Our code in a process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Injected {
    /// Code that copies for the driver.
    Copy(Record),
    /// Code for the driver's checkpoint thread.
    Survey(VisitRecord),
}

impl Injected {
    /// Puts the process back.
    fn put_back(&self, process: &ProcessRef) -> io::Result<()> {
        match self {
            Self::Copy(record) => match put_back(process, record).map_err(io::Error::other)? {
                PutBack::CodeLeft(error) => Err(error),
                PutBack::Ended | PutBack::NothingThere | PutBack::Returned(_) => Ok(()),
            },
            Self::Survey(record) => match remove(process, record).map_err(io::Error::other)? {
                Removed::InUse => {
                    let there = "the driver's checkpoint thread is in code of ours";
                    Err(io::Error::new(io::ErrorKind::TimedOut, there))
                }
                Removed::Ended | Removed::Gone => Ok(()),
            },
        }
    }
}

/// A record whose process this process puts back.
#[derive(Debug)]
pub(super) struct HeldRecord {
    path: PathBuf,
    _lock: File,
}

impl HeldRecord {
    /// Writes the record. It need not outlive the machine, as its process does not.
    pub(super) fn write(
        directory: &Path,
        process: &ProcessRef,
        record: &Injected,
    ) -> io::Result<Self> {
        let lock = lock_of(directory, process.pid())?;
        lock_soon(&lock)?;
        let path = directory.join(process.pid().to_string());
        let recorded = Recorded {
            process: ProcessId::of(process),
            record: record.clone(),
        };
        json_record::write(&path, &recorded)?;
        Ok(Self { path, _lock: lock })
    }

    /// Removes the record, once nothing is left to be put back.
    pub(super) fn remove(&self) {
        // A record that is left has nothing to put back.
        let _ = fs::remove_file(&self.path);
        leave(&self.path);
    }
}

/// Whether a process is still to be put back.
pub(super) fn has_record(directory: &Path, process: &ProcessRef) -> bool {
    directory.join(process.pid().to_string()).exists()
}

/// Whether a directory has a record.
pub(super) fn has_records(directory: &Path) -> bool {
    !records_in(directory).is_empty()
}

/// Returns how many bytes have been copied so far in the processes that have a record here.
pub(super) fn copied(directory: &Path) -> u64 {
    let copied = |path: PathBuf| {
        let recorded: Recorded = json_record::read(&path, MAX_BYTES).ok()??;
        let process = recorded.process.open().ok()??;
        match recorded.record {
            Injected::Copy(record) => Some(record.reported(process.pid()).ok()?.copied),
            Injected::Survey(_) => None,
        }
    };
    let copied = records_in(directory).into_iter().filter_map(copied);
    copied.fold(0, u64::saturating_add)
}

/// Puts back every process that has a record here, once the process that wrote it has ended.
///
/// # Errors
/// The error of the first process that is not put back.
pub(super) fn put_back_all(directory: &Path) -> io::Result<()> {
    let mut result = Ok(());
    for path in records_in(directory) {
        let put = put_one_back(directory, &path);
        result = result.and(put);
    }
    result
}

fn put_one_back(directory: &Path, path: &Path) -> io::Result<()> {
    let Some(Recorded { process, record }) = json_record::read(path, MAX_BYTES)? else {
        return Ok(());
    };
    let lock = lock_of(directory, process.pid)?;
    lock_within(PATIENCE, &lock, Sharing::Exclusive)?;
    if let Some(process) = process.open()? {
        record.put_back(&process)?;
    }
    let removed = file::remove(path);
    leave(path);
    removed
}

/// Removes the lock of a record, and the directory if it is empty. A process that waits for the
/// lock meanwhile finds nothing to put back.
fn leave(record: &Path) {
    let _ = fs::remove_file(record.with_extension(LOCK));
    if let Some(directory) = record.parent() {
        let _ = fs::remove_dir(directory);
    }
}

/// Opens the lock. Another process may remove the directory meanwhile, while it is empty.
fn lock_of(directory: &Path, pid: i32) -> io::Result<File> {
    let lock = directory.join(pid.to_string()).with_extension(LOCK);
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true);
    loop {
        match DirBuilder::new().mode(0o700).create(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        match options.open(&lock) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
    }
}

/// Lists the records. Other files are ignored.
fn records_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let is_record = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.parse::<i32>().is_ok())
    };
    entries
        .map(|entry| entry.path())
        .filter(is_record)
        .collect()
}
