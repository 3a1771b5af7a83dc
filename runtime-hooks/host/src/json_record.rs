//! Records in JSON files.

use std::io;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use stasis_linux::file::{self, Access, Durability};

/// Reads a record of at most `limit` bytes; `None` if there is no such file.
///
/// # Errors
/// As [`file::read`], also for a file that holds no such record.
pub fn read<T: DeserializeOwned>(path: &Path, limit: u64) -> io::Result<Option<T>> {
    let text = file::read(path, limit)?;
    Ok(text.map(|text| serde_json::from_slice(&text)).transpose()?)
}

/// Writes a record that only our user may read, or replaces it whole. It need not outlive the
/// machine's uptime: a crash of the machine may leave an empty file.
pub fn write(path: &Path, record: &(impl Serialize + ?Sized)) -> io::Result<()> {
    let text = serde_json::to_vec(record)?;
    file::replace(path, &text, Access::Private, Durability::Volatile)
}
