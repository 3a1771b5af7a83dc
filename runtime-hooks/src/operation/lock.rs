//! The lock file in an operation's directory, and who holds it.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use stasis_linux::ProcessRef;

use crate::host::file_lock::{self, Sharing};

/// The lock file's name.
pub(crate) const NAME: &str = "lock";

/// The operation that took a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// The process; `None` if it is not known.
    pid: Option<i32>,
}

/// The result of a try.
pub(super) enum Tried {
    Locked(File),
    Held(Holder),
}

/// Tries to lock the file in a directory, which is made if there is none.
pub(super) fn try_lock(directory: &Path) -> io::Result<Tried> {
    let path = directory.join(NAME);
    loop {
        let mut lock = open(directory)?;
        if file_lock::try_lock(&lock, Sharing::Exclusive)? == file_lock::Tried::Held {
            return Ok(Tried::Held(Holder::of(&mut lock)));
        }
        // The previous holder may have removed the file that we locked: check the name again.
        let same = fs::metadata(&path)
            .is_ok_and(|there| lock.metadata().is_ok_and(|ours| ours.ino() == there.ino()));
        if same {
            let _ = lock
                .set_len(0)
                .and_then(|()| write!(lock, "{}", std::process::id()));
            return Ok(Tried::Locked(lock));
        }
    }
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
        let mut pid = String::new();
        let _ = lock.take(16).read_to_string(&mut pid);
        Self {
            pid: pid.parse().ok(),
        }
    }

    /// Whether it was killed: then its keeper has the lock until it has undone what was begun.
    #[must_use]
    pub fn was_killed(&self) -> bool {
        self.pid
            .is_some_and(|pid| matches!(ProcessRef::open(pid), Ok(None)))
    }
}

/// Nothing if it is not known, to follow "another stasis operation".
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            None => Ok(()),
            Some(_) if self.was_killed() => f.write_str(" (the recovery of one that was killed)"),
            Some(pid) => write!(f, " (process {pid})"),
        }
    }
}
