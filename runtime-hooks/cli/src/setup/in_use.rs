//! Containers whose recorded shim is ours.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use stasis_linux::file;

/// The bundles of containerd, and of Docker's own containerd.
const BUNDLES: [&str; 2] = [
    "/run/containerd/io.containerd.runtime.v2.task",
    "/run/docker/containerd/daemon/io.containerd.runtime.v2.task",
];
/// The file in a bundle with the path of its shim.
const RECORD: &str = "shim-binary-path";
const MOST_BYTES: u64 = 4096;

/// Finds bundles with this shim. containerd forgets a container without its shim at its start.
pub(super) fn by(shim: &str) -> io::Result<Vec<String>> {
    let shim = fs::canonicalize(shim)?;
    let mut found = Vec::new();
    for bundle in bundles() {
        if let Some(recorded) = recorded_in(&bundle)?
            && fs::canonicalize(recorded).is_ok_and(|path| path == shim)
        {
            found.push(bundle.display().to_string());
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the bundles of all containers.
pub(crate) fn bundles() -> Vec<PathBuf> {
    let namespaces = BUNDLES.iter().flat_map(entries);
    namespaces.flat_map(entries).collect()
}

/// Reads the path of a bundle's shim; `None` if none is recorded.
pub(crate) fn recorded_in(bundle: &Path) -> io::Result<Option<PathBuf>> {
    let recorded = file::read(&bundle.join(RECORD), MOST_BYTES)?;
    Ok(recorded.map(|path| OsString::from_vec(path).into()))
}

/// Lists a directory; nothing if it does not exist.
fn entries(directory: impl AsRef<Path>) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries.flatten().map(|entry| entry.path()).collect()
}
