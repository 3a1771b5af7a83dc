//! How things are after an operation that failed: the part of an error that tells what to do next.

use std::fmt;

use crate::cgroup::{FreezerError, FreezerState};
use crate::container::ContainerError;
use crate::error::chain;
use crate::fault::{Fault, list};
use crate::guardian::Waiting;

/// How things are after a failure.
#[derive(Debug)]
pub enum Aftermath {
    /// All processes run, or are paused as they were, with the GPU usable.
    Unharmed(FreezerState),
    /// The same, of a container without GPU state.
    AsBefore(FreezerState),
    /// The workload has ended meanwhile.
    Ended,
    /// These processes could not be brought back.
    Lost(Vec<Fault>),
    /// These processes do not answer, and a guardian waits for them; the others are as before.
    Waiting(Waiting),
    /// None of the processes can be reached, and a guardian waits for them.
    Held(Waiting),
    /// Processes are without memory that was taken of them, and wait for it.
    WithoutMemory,
    /// A complete image was written; the container has become what [`Aftermath::WithoutMemory`] says.
    ImageCompleteWithoutMemory,
    /// The GPU part is undone, and the freezer does not do as it was told.
    Freezer(FreezerError),
    /// The container could not be looked at to undo anything.
    Unknown(ContainerError),
    /// Nothing has been changed.
    StillPaused,
    /// A half-restored container was ended.
    Killed,
    /// A complete image was written; these processes did not go on.
    ImageComplete(Vec<Fault>),
    /// A complete image was written; these processes do not answer, and a guardian waits for them.
    ImageCompleteWaiting(Waiting),
}

impl fmt::Display for Aftermath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unharmed(FreezerState::Thawed) => {
                f.write_str("the container runs on as before, with its GPU")
            }
            Self::Unharmed(FreezerState::Frozen) => {
                f.write_str("the container is paused as before, with its GPU")
            }
            Self::AsBefore(FreezerState::Thawed) => f.write_str("the container runs on as before"),
            Self::AsBefore(FreezerState::Frozen) => {
                f.write_str("the container is paused as before")
            }
            Self::Ended => f.write_str("the container has ended meanwhile"),
            Self::Lost(faults) if faults.is_empty() => {
                f.write_str("other processes of the container may run; kill it")
            }
            Self::Lost(faults) => write!(
                f,
                "these processes could not be brought back and have to be killed: {}",
                list(faults)
            ),
            Self::Waiting(waiting) => write!(
                f,
                "the other processes of the container are as before, with their GPU; {waiting}"
            ),
            Self::Held(waiting) => {
                write!(f, "its processes may not have their GPU yet; {waiting}")
            }
            Self::Freezer(error) => write!(
                f,
                "its processes have their GPU again, but the container may not be paused or \
                 running as before: {}",
                chain(error)
            ),
            Self::Unknown(error) => write!(
                f,
                "its processes may still be locked ({}); `resume` it or kill it",
                chain(error)
            ),
            Self::WithoutMemory => f.write_str("its processes wait for it in vain; kill it"),
            Self::ImageCompleteWithoutMemory => f.write_str(
                "they wait for it in vain; kill it and restore the image, which is complete",
            ),
            Self::StillPaused => f.write_str("the container is still paused"),
            Self::Killed => f.write_str("what had been restored was ended, the image is unchanged"),
            Self::ImageComplete(faults) if faults.is_empty() => f.write_str(
                "the image is complete and restores, and the container runs on with its GPU",
            ),
            Self::ImageComplete(faults) => write!(
                f,
                "the image is complete and restores, but these processes did not go on and have \
                 to be killed: {}",
                list(faults)
            ),
            Self::ImageCompleteWaiting(waiting) => write!(
                f,
                "the image is complete and restores, and the other processes of the container are \
                 as before, with their GPU; {waiting}"
            ),
        }
    }
}
