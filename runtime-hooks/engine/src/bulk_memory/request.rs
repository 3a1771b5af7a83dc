//! Requests to store contents, or to our CRIU plugin, and their progress: files in the operation's
//! directory.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use stasis_config::Settings;
use stasis_host::file_lock::{Sharing, lock_within};
use stasis_host::json_record;
use stasis_linux::file;
use stasis_memory_store::DumpRequest;

use crate::bulk_memory::places;
use crate::operation::OperationError;

/// A request lists every CUDA process by its pid.
const MAX_REQUEST_BYTES: u64 = 16 << 20;
const REQUEST: &str = "memory-request.json";
/// For contents that are stored once the processes resume ([`super::dump`]).
const REQUEST_OF_STAGED: &str = "memory-request-of-staged.json";

/// The files of one request, which are removed when this value is dropped.
#[derive(Debug)]
pub(crate) struct RequestFiles {
    pub(crate) request: PathBuf,
    pub(crate) progress: PathBuf,
}

impl RequestFiles {
    /// The files in an operation's directory.
    pub(crate) fn of(directory: &Path) -> Self {
        Self {
            request: directory.join(REQUEST),
            progress: directory.join("memory-progress"),
        }
    }

    /// The files for contents that are stored once the processes resume.
    pub(crate) fn of_staged(directory: &Path) -> Self {
        Self {
            request: directory.join(REQUEST_OF_STAGED),
            progress: directory.join("memory-progress-of-staged"),
        }
    }

    /// Writes the request, whole or not at all: a recovery of the operation finds by it what was
    /// stored. Removes the progress of an earlier request.
    pub(crate) fn write(&self, request: &impl Serialize) -> Result<(), OperationError> {
        let removed = file::remove(&self.progress);
        let written = removed.and_then(|()| json_record::write(&self.request, request));
        written.map_err(OperationError::of_file(&self.request))
    }

    /// Waits, no longer than `limit`, until no process stores contents for this request. A process
    /// that does keeps the file locked.
    pub(crate) fn wait_until_done(&self, limit: Duration) {
        // If the file is gone, no process works on the request.
        if let Ok(Some(request)) = file::open(&self.request) {
            let _ = lock_within(limit, &request, Sharing::Exclusive);
        }
    }
}

impl Drop for RequestFiles {
    fn drop(&mut self) {
        // The operation's directory stays if there is an intent.
        for file in [&self.request, &self.progress] {
            let _ = file::remove(file);
        }
    }
}

/// Reads the request of a checkpoint; `None` also for one of a restore.
pub(crate) fn of_dump(request: &Path) -> io::Result<Option<DumpRequest>> {
    match json_record::read(request, MAX_REQUEST_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(None),
        read => read,
    }
}

/// The stores that an operation writes, or wrote when it was interrupted, by its directory.
pub(crate) fn stores(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut stores = Vec::new();
    for name in [REQUEST, REQUEST_OF_STAGED] {
        let request = of_dump(&directory.join(name))?;
        stores.extend(request.and_then(|request| request.directory));
    }
    Ok(stores)
}

/// Returns the number of threads that move contents to or from a directory apart, or an image.
pub(crate) fn threads(settings: &Settings, apart: Option<&Path>) -> usize {
    match apart {
        Some(directory) if !places::in_memory(directory) => settings.gpu_contents.threads_on_disk(),
        _ => settings.gpu_contents.threads(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_new_request_removes_the_progress_of_the_last() {
        let directory = tempfile::tempdir().unwrap();
        let files = RequestFiles::of(directory.path());
        fs::write(&files.progress, "1 2").unwrap();
        files.write(&"request").unwrap();
        assert!(files.request.exists() && !files.progress.exists());
        drop(files);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
