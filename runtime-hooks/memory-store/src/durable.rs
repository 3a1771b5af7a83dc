//! Small files and directories that survive a crash.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::StoreError;

/// What a file is called until it is whole.
pub(crate) fn staged(name: &str) -> String {
    format!(".{name}.new")
}

/// Writes a file whole or not at all; on disk when this returns, but for its name ([`sync_directory`]).
pub(crate) fn write(directory: &Path, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
    let (new, path) = (directory.join(staged(name)), directory.join(name));
    remove(&new)?;
    let write = || {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, &path)
    };
    write().map_err(|error| {
        let error = StoreError::writing(&path)(error);
        let _ = fs::remove_file(&new);
        error
    })
}

/// Removes a file; that there is none is no error.
pub(crate) fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(StoreError::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}

/// Makes the names of a directory's files survive a crash.
pub(crate) fn sync_directory(directory: &Path) -> Result<(), StoreError> {
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(StoreError::io("write", directory))
}
