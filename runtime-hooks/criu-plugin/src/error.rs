//! Errors of the plugin, as text for CRIU's log.

use std::io;
use std::path::PathBuf;

use stasis_memory_store::StoreError;

/// Why an image must not be written, or not be restored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The index cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The task would run, and end with a signal once the driver restores its GPU.
    #[error(
        "the contents of process {pid} of the container at {start:x} ({bytes} bytes) are not in \
         CRIU's images, and who restores it does not fill them in: restore the image with \
         stasis-runtime, of the version that made it or a later one"
    )]
    Hole { pid: i32, start: u64, bytes: u64 },
    /// CRIU would write an image that lacks memory, and nothing in it would say where that is.
    #[error(
        "the image has no index of the memory that was stored before CRIU ran, for {image}: \
         it was not written or has been deleted"
    )]
    NoIndex { image: String },
    /// The index is of another image than the engine expects.
    #[error(
        "the index is that of image {found}, not of {expected}: files of two images were mixed up"
    )]
    OtherImage { found: String, expected: String },
    /// A request of the engine could not be read.
    #[error("cannot read the request {}: {source}", path.display())]
    Request { path: PathBuf, source: io::Error },
    /// CRIU has no image directory, or did not record that this plugin is needed.
    #[error("CRIU does not {0}")]
    Criu(&'static str),
    /// The engine wants no task to run yet.
    #[error("cannot freeze the container's cgroup {}: {source}", cgroup.display())]
    NotHeld { cgroup: PathBuf, source: io::Error },
    /// Injected by a test.
    #[cfg(debug_assertions)]
    #[error("a fault for a test")]
    Injected,
}
