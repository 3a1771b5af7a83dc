//! Which GPU memory a locked process has, with which rights, and from whom: asked of libcuda by the
//! driver's own checkpoint thread (`stasis-injected-survey`).
//!
//! * [`prepare`]: memory of ours in the process, with code that nobody executes, and a stack. Its
//!   [`SurveyRecord`] has to be kept where it survives us before the next step.
//! * [`ask`]: the thread is sent there, again and again, a few milliseconds each time: who asks the
//!   driver something meanwhile waits for it, and takes longer for a process that is stopped.
//! * [`remove`]: the memory is gone. Also by whoever comes after us, if we were killed.
//!
//! # If we are killed
//! A thread that was sent answers and goes back alone. Until it has, nothing of ours can be taken
//! out of the process ([`Removed::InUse`]).

mod ask;
mod errand;
mod error;
mod ranges;
mod record;

pub use ask::{Found, ask};
pub(crate) use errand::{Asked, Words, one, request};
pub use error::SurveyError;
pub use record::{Removed, SurveyRecord, prepare, remove};
pub use stasis_injected_survey::{Allocation, DEVICES, Kind};
