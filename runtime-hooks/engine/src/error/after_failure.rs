//! The container's state after a failed operation: the part of an error that says what to do next.

use std::fmt;
use std::path::{Path, PathBuf};

use stasis_gpu::cuda::failure::{ProcessFailure, list};
use stasis_linux::cgroup::{FreezerError, FreezerState};

use crate::container::ContainerError;
use crate::error::chain;
use crate::error::kind::{Image, State};
use crate::error::pending_recovery::PendingRecovery;
use crate::operation::Left;

const ENDED_IMAGE_COMPLETE: &str = "the image is complete and restores, and the container has \
                                    ended meanwhile";
const NOT_PAUSED: &str = "the container runs although its caller had paused it, and a process of \
                          stasis tries to pause it again";
const ENDED_AT_START: &str = "what had been restored was ended, the image is unchanged; its caller \
                              knows the container by that process, so it cannot be started cold \
                              any more: create it again, which begins with the image or starts \
                              cold";

/// The container's state after a failure.
#[derive(Debug)]
pub enum AfterFailure {
    /// All processes run, or are paused as before, with the GPU usable.
    Unharmed(FreezerState),
    /// The same for a container without GPU state.
    AsBefore(FreezerState),
    /// The workload has ended meanwhile.
    Ended,
    /// The workload has ended, and the image in this directory, its last copy, may not be whole.
    EndedNotOnDisk(PathBuf),
    /// These processes could not be brought back.
    Lost(Vec<ProcessFailure>),
    /// These processes do not answer, and a keeper waits for them. The other processes
    /// are as before.
    PendingRecovery(PendingRecovery),
    /// None of the processes can be reached, and a keeper waits for them.
    Held(PendingRecovery),
    /// The GPU state was rolled back, but the freezer did not change its state.
    Freezer(FreezerError),
    /// The container was found paused and could not be paused again; its keeper tries on.
    NotPaused,
    /// The container could not be read, so nothing was rolled back.
    Unknown(ContainerError),
    /// Nothing has been changed.
    StillPaused,
    /// Nothing of a container was restored yet.
    NotStarted,
    /// A half-restored container was ended.
    Killed,
    /// The same for a container that had been created from an image, and was to be started.
    EndedAtStart,
    /// A half-restored container, whose init has this pid, was killed and has not ended.
    NotEnded(i32),
    /// The workload has ended, and a complete image of it was written before.
    EndedImageComplete,
    /// A complete image was written; these processes did not resume.
    ImageComplete(Vec<ProcessFailure>),
    /// A complete image was written; these processes do not answer, and a keeper waits
    /// for them.
    ImageCompleteWaiting(PendingRecovery),
}

impl AfterFailure {
    /// The part of the operation that is left to be undone.
    pub(crate) fn left(&self) -> Left {
        match self {
            Self::Unharmed(_)
            | Self::AsBefore(_)
            | Self::Ended
            | Self::EndedImageComplete
            | Self::NotStarted
            | Self::Killed
            | Self::EndedAtStart
            | Self::StillPaused => Left::Nothing,
            Self::ImageComplete(lost) => Left::of(lost),
            // `lost` names all of them, or they are not known.
            Self::Lost(lost) => match Left::of(lost) {
                Left::Nothing => Left::Lost,
                left => left,
            },
            Self::EndedNotOnDisk(_) => Left::Lost,
            Self::PendingRecovery(_)
            | Self::ImageCompleteWaiting(_)
            | Self::Held(_)
            | Self::Freezer(_)
            | Self::NotPaused
            | Self::Unknown(_)
            | Self::NotEnded(_) => Left::ToUndo,
        }
    }

    /// The container's state.
    pub fn state(&self) -> State {
        match self {
            Self::Unharmed(_) | Self::AsBefore(_) => State::Unharmed,
            Self::Ended
            | Self::EndedNotOnDisk(_)
            | Self::EndedImageComplete
            | Self::NotStarted
            | Self::Killed
            | Self::EndedAtStart => State::Ended,
            Self::Lost(_) | Self::NotEnded(_) => State::Lost,
            Self::PendingRecovery(waiting)
            | Self::Held(waiting)
            | Self::ImageCompleteWaiting(waiting) => match waiting.is_recovering() {
                true => State::Waiting,
                false => State::Unknown,
            },
            Self::Freezer(_) | Self::NotPaused | Self::Unknown(_) => State::Unknown,
            Self::StillPaused => State::Paused,
            Self::ImageComplete(lost) if lost.is_empty() => State::Unharmed,
            Self::ImageComplete(_) => State::Lost,
        }
    }

    /// Whether a complete image was written in spite of the failure.
    pub fn image(&self) -> Image {
        match self {
            Self::EndedImageComplete | Self::ImageComplete(_) | Self::ImageCompleteWaiting(_) => {
                Image::Complete
            }
            _ => Image::None,
        }
    }
}

impl fmt::Display for AfterFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unharmed(found) => write!(f, "{}, with its GPU", as_before(*found)),
            Self::AsBefore(found) => f.write_str(as_before(*found)),
            Self::Ended => f.write_str("the container has ended meanwhile"),
            Self::EndedNotOnDisk(image) => ended_not_on_disk(f, image),
            Self::EndedImageComplete => f.write_str(ENDED_IMAGE_COMPLETE),
            Self::Lost(failures) if failures.is_empty() => {
                f.write_str("other processes of the container may run; kill it")
            }
            Self::Lost(failures) => write!(
                f,
                "these processes could not be brought back and have to be killed: {}",
                list(failures)
            ),
            Self::PendingRecovery(waiting) => write!(
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
            Self::NotPaused => f.write_str(NOT_PAUSED),
            Self::Unknown(error) => write!(
                f,
                "its processes may still be locked ({}); `resume` it or kill it",
                chain(error)
            ),
            Self::StillPaused => f.write_str("the container is still paused"),
            Self::NotStarted => {
                f.write_str("nothing had been restored yet, and the image is unchanged")
            }
            Self::Killed => f.write_str("what had been restored was ended, the image is unchanged"),
            Self::EndedAtStart => f.write_str(ENDED_AT_START),
            Self::NotEnded(pid) => write!(
                f,
                "what had been restored was killed, but process {pid} has not ended: a freezer may \
                 hold it, so write THAWED to freezer.state of its cgroups, and a process of stasis \
                 removes what is left; the image is unchanged"
            ),
            Self::ImageComplete(failures) if failures.is_empty() => f.write_str(
                "the image is complete and restores, and the container runs on with its GPU",
            ),
            Self::ImageComplete(failures) => write!(
                f,
                "the image is complete and restores, but these processes did not go on and have \
                 to be killed: {}",
                list(failures)
            ),
            Self::ImageCompleteWaiting(waiting) => write!(
                f,
                "the image is complete and restores, and the other processes of the container are \
                 as before, with their GPU; {waiting}"
            ),
        }
    }
}

fn ended_not_on_disk(f: &mut fmt::Formatter<'_>, image: &Path) -> fmt::Result {
    write!(
        f,
        "the container has ended, and its image in {}, the last copy of it, may not be whole on \
         disk: copy it to another disk before this machine restarts",
        image.display()
    )
}

fn as_before(found: FreezerState) -> &'static str {
    match found {
        FreezerState::Thawed => "the container runs on as before",
        FreezerState::Frozen => "the container is paused as before",
    }
}

#[cfg(test)]
mod tests {
    use stasis_linux::ProcessRef;

    use super::*;
    use stasis_gpu::cuda::CudaError;
    use stasis_gpu::cuda::failure::{Cause, Step};

    #[test]
    fn who_may_come_back_is_not_given_up_with_one_who_is_lost() {
        let own = i32::try_from(std::process::id()).unwrap();
        let own = ProcessRef::open(own).unwrap().unwrap();
        let failure = |cause| ProcessFailure::of(Step::Restore, &own, cause);
        let lost = || failure(Cause::Driver(CudaError::OutOfMemory));
        let silent = || failure(Cause::NoAnswer(std::time::Duration::ZERO));
        let left = |failures| AfterFailure::Lost(failures).left();
        assert_eq!(left(vec![lost()]), Left::Lost);
        assert_eq!(left(vec![lost(), silent()]), Left::ToUndo);
        assert_eq!(left(Vec::new()), Left::Lost);
        assert_eq!(
            AfterFailure::ImageComplete(Vec::new()).left(),
            Left::Nothing
        );
        assert_eq!(AfterFailure::NotEnded(1).left(), Left::ToUndo);
    }
}
