//! The lock file in an operation's directory, and its holder.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use stasis_host::file_lock::{self, Sharing};
use stasis_linux::ProcessRef;

/// The lock file's name.
pub(crate) const NAME: &str = "lock";

/// The name that a recovery writes in place of its pid.
const RECOVERY: &str = "recovery";

/// More removals do not happen during one try.
const MOST_REMOVALS: u32 = 1000;

/// The purpose of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A requested operation.
    Operation,
    /// A try to undo an earlier operation.
    Recovery,
}

/// The holder of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// The operation of this process.
    Operation(i32),
    /// A try to undo an earlier operation.
    Recovery,
    /// A process that has just taken the lock and not written its name yet.
    Unknown,
}

/// The result of a try.
pub(super) enum Tried {
    Locked(File),
    Held(Holder),
}

/// Tries to lock the file in a directory, which is made if it does not exist.
pub(super) fn try_lock(directory: &Path, purpose: Purpose) -> io::Result<Tried> {
    let path = directory.join(NAME);
    let mut removals = 0;
    loop {
        let mut lock = match open(directory) {
            // The former holder has removed the directory meanwhile.
            Err(error) if is_removed(&error) && removals < MOST_REMOVALS => {
                removals += 1;
                continue;
            }
            opened => opened?,
        };
        if file_lock::try_lock(&lock, Sharing::Exclusive)? == file_lock::Tried::Held {
            return Ok(Tried::Held(Holder::of(&mut lock)));
        }
        // The previous holder may have removed the file that we locked: check the name again.
        let same = fs::metadata(&path)
            .is_ok_and(|there| lock.metadata().is_ok_and(|ours| ours.ino() == there.ino()));
        if same {
            let name = match purpose {
                Purpose::Operation => std::process::id().to_string(),
                Purpose::Recovery => RECOVERY.to_owned(),
            };
            let _ = lock
                .set_len(0)
                .and_then(|()| lock.write_all(name.as_bytes()));
            return Ok(Tried::Locked(lock));
        }
    }
}

/// Returns whether a process holds the lock of a directory. Takes the lock for a moment if it is
/// free.
pub fn is_held(directory: &Path) -> bool {
    file_lock::is_held(&directory.join(NAME), Sharing::Shared).unwrap_or(false)
}

/// The directory existed when it was to be made, or no longer when it was to be used.
fn is_removed(error: &io::Error) -> bool {
    [io::ErrorKind::AlreadyExists, io::ErrorKind::NotFound].contains(&error.kind())
}

fn open(directory: &Path) -> io::Result<File> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600);
    options.open(directory.join(NAME))
}

impl Holder {
    fn of(lock: &mut File) -> Self {
        let mut name = String::new();
        let _ = lock.take(16).read_to_string(&mut name);
        match name.parse() {
            Ok(pid) => Self::Operation(pid),
            Err(_) if name == RECOVERY => Self::Recovery,
            Err(_) => Self::Unknown,
        }
    }

    /// Returns whether the holder is worth waiting for: a recovery is over soon. A keeper that
    /// waits for room takes the lock for a moment at each check, and the keeper of a killed
    /// operation holds its lock until the changes are undone.
    pub(crate) fn ends_soon(&self) -> bool {
        match self {
            Self::Operation(pid) => matches!(ProcessRef::open(*pid), Ok(None)),
            Self::Recovery | Self::Unknown => true,
        }
    }
}

/// Follows "another stasis operation"; empty if the holder is not known.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => Ok(()),
            Self::Operation(pid) if !self.ends_soon() => write!(f, " (process {pid})"),
            Self::Operation(_) | Self::Recovery => f.write_str(" (the recovery of an earlier one)"),
        }
    }
}
