//! The entries of other operations, as files.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use stasis_host::file_lock::{Sharing, Tried, try_lock, unlock};
use stasis_linux::file;

use crate::ledger::amounts::Entry;

/// An entry has some hundred bytes.
const MAX_BYTES: u64 = 1 << 16;

/// Returns the entries that count, apart from the one at `own`: of operations that live, and of
/// operations that were killed and are still to be undone. The driver finishes a restore whose
/// caller has died, and takes the memory then. A process that undoes an operation, with this
/// `record`, reserves for itself. Removes all other entries, whatever their contents. A file that
/// is no entry counts as nothing, and is no error. Runs under the ledger's lock.
///
/// # Errors
/// The directory cannot be read.
pub(super) fn of_others(
    directory: &Path,
    own: Option<&Path>,
    record: Option<&Path>,
) -> io::Result<Vec<Entry>> {
    let mut counting = Vec::new();
    for found in fs::read_dir(directory)? {
        let path = found?.path();
        if own == Some(&*path) {
            continue;
        }
        let Ok(Some(file)) = file::open(&path) else {
            continue;
        };
        let entry = read(&file);
        if is_held(&file) || entry.as_ref().is_some_and(|entry| is_left(entry, record)) {
            counting.extend(entry);
        } else {
            let _ = fs::remove_file(&path);
        }
    }
    Ok(counting)
}

/// Whether the operation of an entry is still to be undone, by another process.
fn is_left(entry: &Entry, record: Option<&Path>) -> bool {
    let left = entry.record.as_deref();
    left.is_some_and(|left| record != Some(left) && left.exists())
}

/// Whether an entry's operation lives: it holds the lock until its end, however it ends. If that is
/// not known the entry stays. Unlocks, since a child that another thread starts has the file open
/// as well for a moment, and must not look like the holder.
fn is_held(file: &File) -> bool {
    let is_free = matches!(try_lock(file, Sharing::Exclusive), Ok(Tried::Locked));
    !is_free || unlock(file).is_err()
}

fn read(file: &File) -> Option<Entry> {
    let text = file::read_limited(file, MAX_BYTES).ok()?;
    serde_json::from_slice(&text).ok()
}
