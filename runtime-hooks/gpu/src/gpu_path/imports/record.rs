//! The record of memory that is not shared as it was, in the operation's directory.

use std::io;
use std::path::Path;

use stasis_host::json_record;
use stasis_linux::ProcessRef;
use stasis_linux::file::{self, Access, Durability};

use super::Share;
use crate::cuda::process_set::initial_state::ProcessId;

const RECORD: &str = "gpu-imports.json";
/// Far more than the ranks of any job have.
const MAX_BYTES: u64 = 64 << 20;

/// Writes the record. It need not outlive the machine, as the processes do not.
pub fn write(directory: &Path, shares: &[Share]) -> io::Result<()> {
    let text = serde_json::to_vec(shares)?;
    file::check_size(text.len() as u64, MAX_BYTES)?;
    let path = directory.join(RECORD);
    file::replace(&path, &text, Access::Private, Durability::Volatile)
}

/// Returns the memory that may not be shared as it was; empty if all is.
pub(in crate::gpu_path) fn read(directory: &Path) -> io::Result<Vec<Share>> {
    let shares = json_record::read(&directory.join(RECORD), MAX_BYTES)?;
    Ok(shares.unwrap_or_default())
}

/// Whether a process shares memory that was given up. A record that cannot be read may be about it.
#[must_use]
pub fn is_given_up(directory: &Path, process: &ProcessRef) -> bool {
    let id = ProcessId::of(process);
    read(directory).map_or(true, |shares| {
        let mut shares = shares.iter();
        shares.any(|share| share.importer == id || share.owner == id)
    })
}

/// Removes the record: all memory is shared as it was.
pub(in crate::gpu_path) fn forget(directory: &Path) -> io::Result<()> {
    file::remove(&directory.join(RECORD))
}
