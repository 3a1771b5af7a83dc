//! What can go wrong, as text for CRIU's log and the engine's report.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use stasis_memory_store::{StoreError, TreeMismatch};

/// Why memory could not be taken or given back.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A task could not be looked at, read, written or made to do something.
    #[error("cannot {action} process {pid}: {source}")]
    Task {
        /// "read the memory of"
        action: &'static str,
        /// In CRIU's pid namespace.
        pid: i32,
        source: io::Error,
    },
    /// The engine's record and CRIU's process tree differ. The engine reports it in its own words.
    #[error("the CUDA processes are not those that the engine has recorded: {0:?}")]
    Tree(TreeMismatch),
    /// An area of the index is not there as it was.
    #[error(
        "process {pid} of the container has no private memory of {bytes} bytes at {start:x}: \
         index and CRIU's images do not belong together"
    )]
    NoArea { pid: i32, start: u64, bytes: u64 },
    /// Its task would run, and end with a signal once the driver restores its GPU.
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
    /// A process of the index was not restored.
    #[error(
        "process {pid} of the container was not restored: \
         index and CRIU's images do not belong together"
    )]
    NoProcess { pid: i32 },
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
    /// An area of more than 16 PiB.
    #[error("an area of process {pid} is too large")]
    TooLarge { pid: i32 },
    /// The kernel's pages have another size.
    #[error("this kernel has pages of {bytes} bytes, and the plugin of stasis needs 4096")]
    PageSize { bytes: usize },
    /// The kernel may write to the process's memory at any time.
    #[error("it has asynchronous I/O (an AIO context or an io_uring)")]
    AsynchronousIo,
    /// A dump now would store zeros for it.
    #[error(
        "the memory of process {pid} of the container at {start:x} is still missing since an earlier \
         checkpoint failed: wait until it is given back, or end the container"
    )]
    Missing { pid: i32, start: u64 },
    /// Without the daemon, tasks would lose their memory if CRIU were killed.
    #[error("cannot have the tasks looked after: {source}")]
    UffdDaemon { source: io::Error },
    /// The engine wants no task to run yet.
    #[error("cannot freeze the container's cgroup {}: {source}", cgroup.display())]
    NotHeld { cgroup: PathBuf, source: io::Error },
    /// Injected by a test.
    #[cfg(debug_assertions)]
    #[error("a fault for a test")]
    Injected,
    /// A thread of ours panicked.
    #[error("a thread panicked, which is a fault in stasis")]
    Panic,
    /// Both the work and the way back failed.
    #[error("{first}; and giving back what had been taken: {second}")]
    Both {
        first: Box<Error>,
        second: Box<Error>,
    },
}

/// Runs this, and turns a panic into an error.
pub(crate) fn caught<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(Error::Panic))
}

impl Error {
    pub(crate) fn task(action: &'static str, pid: i32) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Task {
            action,
            pid,
            source,
        }
    }
}
