//! The entries of other operations, as files.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use stasis_linux::file;

use crate::host::file_lock::{Sharing, Tried, try_lock, unlock};
use crate::ledger::amounts::Entry;

/// An entry has some hundred bytes.
const MAX_BYTES: u64 = 1 << 16;

/// The entries that count, apart from the one at `own`: those whose operations live, and those of
/// operations that were killed and are still to be undone. The driver finishes a restore whose
/// caller has died, and takes the memory then. Whoever undoes it, and has this `record`, asks for
/// itself. Removes the others, whatever is in them. What is no entry is nothing, and stops nobody.
/// Runs under the ledger's lock.
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

/// Whether the operation of an entry is still to be undone, by somebody else.
fn is_left(entry: &Entry, record: Option<&Path>) -> bool {
    let left = entry.record.as_deref();
    left.is_some_and(|left| record != Some(left) && left.exists())
}

/// Whether its operation lives: it holds the lock until its end, whatever that is. What is not
/// known stays. A child that another thread starts has the file open as well for a moment, and must
/// not look as if it had the lock.
fn is_held(file: &File) -> bool {
    let is_free = matches!(try_lock(file, Sharing::Exclusive), Ok(Tried::Locked));
    !is_free || unlock(file).is_err()
}

fn read(file: &File) -> Option<Entry> {
    let text = file::read_limited(file, MAX_BYTES).ok()?;
    serde_json::from_slice(&text).ok()
}
