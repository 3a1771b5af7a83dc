//! A directory of ours beside a file or directory of the user's, with its unpacked contents or its
//! future ones. The directory is locked as long as it is used, so that the rest of a killed command
//! is known as such.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use stasis_host::file_lock::{Lock, Sharing, Tried, try_lock};
use stasis_linux::directory::Directory;
use stasis_linux::file;

use crate::error::MoveError;

/// The directory.
#[derive(Debug)]
pub(crate) struct Beside {
    path: PathBuf,
    lock: Lock,
}

/// Returns the path `.NAME.ENDING` beside this one, which is absolute.
pub(crate) fn path_of(path: &Path, ending: &str) -> Result<PathBuf, MoveError> {
    let mut name = OsString::from(".");
    let own = path.file_name();
    name.push(own.ok_or_else(|| MoveError::There(path.to_owned()))?);
    name.push(ending);
    Ok(path.with_file_name(name))
}

impl Beside {
    /// Makes the directory `.NAME.ENDING` beside the named path, or opens an earlier command's.
    pub(crate) fn begin(named: &Path, ending: &str) -> Result<Self, MoveError> {
        let named = std::path::absolute(named).map_err(MoveError::io("find", named))?;
        let path = path_of(&named, ending)?;
        let directory = Directory::make(&path, 0o700).map_err(MoveError::io("make", &path))?;
        let lock = Lock::of(directory.into_file());
        let tried = try_lock(lock.file(), Sharing::Exclusive);
        let beside = Self { path, lock };
        match tried.map_err(MoveError::io("lock", &beside.path))? {
            Tried::Locked if file::is_at(beside.file(), &beside.path) => Ok(beside),
            // Another command has just renamed the directory, or holds it.
            Tried::Locked | Tried::Held => Err(MoveError::Busy(named)),
        }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The open directory, with its lock.
    pub(crate) fn file(&self) -> &File {
        self.lock.file()
    }

    /// Removes all entries but these names.
    pub(crate) fn keep_only<N: Borrow<str> + Ord>(
        &self,
        names: &BTreeSet<N>,
    ) -> Result<(), MoveError> {
        let entries = fs::read_dir(&self.path).map_err(MoveError::io("read", &self.path))?;
        for entry in entries {
            let entry = entry.map_err(MoveError::io("read", &self.path))?;
            let name = entry.file_name();
            if name.to_str().is_none_or(|name| !names.contains(name)) {
                let path = entry.path();
                let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
                let removed = match is_directory {
                    true => fs::remove_dir_all(&path),
                    false => fs::remove_file(&path),
                };
                removed.map_err(MoveError::io("remove", &path))?;
            }
        }
        Ok(())
    }

    /// Leaves these names for the next command; removes the directory if it has none of them.
    pub(crate) fn leave<N: Borrow<str> + Ord>(&self, names: &BTreeSet<N>) {
        // The next command removes what cannot be removed now.
        let _ = self.keep_only(names);
        let _ = fs::remove_dir(&self.path);
    }
}
