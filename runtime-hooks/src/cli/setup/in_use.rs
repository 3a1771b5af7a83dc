//! Containers whose recorded shim is ours.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use stasis_linux::file;

/// Where containerd, and Docker's own, record their containers.
const BUNDLES: [&str; 2] = [
    "/run/containerd/io.containerd.runtime.v2.task",
    "/run/docker/containerd/daemon/io.containerd.runtime.v2.task",
];
const RECORD: &str = "shim-binary-path";
const MOST_BYTES: u64 = 4096;

/// Their bundles. containerd forgets a container whose shim it does not find at its next start.
pub(super) fn by(shim: &str) -> io::Result<Vec<String>> {
    let shim = fs::canonicalize(shim)?;
    let mut found = Vec::new();
    for namespace in BUNDLES.iter().map(Path::new).flat_map(entries) {
        for bundle in entries(&namespace) {
            if let Some(recorded) = file::read(&bundle.join(RECORD), MOST_BYTES)?
                && fs::canonicalize(path(recorded)).is_ok_and(|path| path == shim)
            {
                found.push(bundle.display().to_string());
            }
        }
    }
    found.sort();
    Ok(found)
}

fn path(bytes: Vec<u8>) -> PathBuf {
    std::ffi::OsString::from_vec(bytes).into()
}

/// None where there is no such directory.
fn entries(directory: impl AsRef<Path>) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries.flatten().map(|entry| entry.path()).collect()
}
