//! What can go wrong, in words for CRIU's log and the engine's report.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use stasis_memory_store::StoreError;

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
    /// An area of the index is not there as it was.
    #[error(
        "process {pid} of the container has no private memory of {bytes} bytes at {start:x}: index and CRIU's images do not belong together"
    )]
    NoArea { pid: i32, start: u64, bytes: u64 },
    /// A process of the index was not restored.
    #[error(
        "process {pid} of the container was not restored: index and CRIU's images do not belong together"
    )]
    NoProcess { pid: i32 },
    /// The index is of another image than the engine expects.
    #[error(
        "the index is that of image {found}, not of {expected}: files of two images were mixed up"
    )]
    OtherImage { found: String, expected: String },
    /// An order of the engine could not be read.
    #[error("cannot read the order {}: {source}", path.display())]
    Order { path: PathBuf, source: io::Error },
    /// CRIU told no image directory, or would not take a note.
    #[error("CRIU does not {0}")]
    Criu(&'static str),
    /// An area of more than 16 PiB.
    #[error("an area of process {pid} is too large")]
    TooLarge { pid: i32 },
    /// A dump now would have zeros for it.
    #[error(
        "the memory of process {pid} of the container at {start:x} is still missing since an earlier checkpoint failed: wait until it is given back, or end the container"
    )]
    Missing { pid: i32, start: u64 },
    /// Without it, tasks would lose their memory with CRIU.
    #[error("cannot have the tasks looked after: {source}")]
    Guard { source: io::Error },
    /// A test wanted it.
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

/// Work whose panic is an error like any other.
pub(crate) fn caught<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(Error::Panic))
}

impl Error {
    /// With its causes, each said once.
    pub(crate) fn told(&self) -> String {
        let mut text = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(cause) = source {
            let next = cause.to_string();
            if !text.contains(&next) {
                text = format!("{text}: {next}");
            }
            source = cause.source();
        }
        text
    }

    pub(crate) fn task(action: &'static str, pid: i32) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Task {
            action,
            pid,
            source,
        }
    }
}
