//! The entries of other operations, as files.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use stasis_linux::file;

use crate::host::file_lock::{Sharing, Tried, try_lock};
use crate::ledger::amounts::Entry;

/// The lock of the whole ledger.
pub(super) const LOCK: &str = "lock";
/// An entry has some hundred bytes.
const MAX_BYTES: u64 = 1 << 16;

/// The entries whose operations live, apart from the one at `own`. Removes those whose operations
/// have died, whatever is in them. What is no entry is nothing, and stops nobody. Runs under the
/// ledger's lock.
///
/// # Errors
/// The directory cannot be read.
pub(super) fn of_others(directory: &Path, own: Option<&Path>) -> io::Result<Vec<Entry>> {
    let mut live = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name == LOCK) || own == Some(&*path) {
            continue;
        }
        let Ok(Some(file)) = file::open(&path) else {
            continue;
        };
        if is_held(&file) {
            live.extend(read(&file));
        } else {
            let _ = fs::remove_file(&path);
        }
    }
    Ok(live)
}

/// Whether its operation lives: it holds the lock until its end, whatever that is. What is not
/// known stays.
fn is_held(file: &File) -> bool {
    !matches!(try_lock(file, Sharing::Exclusive), Ok(Tried::Locked))
}

fn read(file: &File) -> Option<Entry> {
    let text = file::read_limited(file, MAX_BYTES).ok()?;
    serde_json::from_slice(&text).ok()
}
