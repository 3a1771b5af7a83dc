//! The GPU memory of a locked process, its rights, and the processes that it is from: the driver's
//! own checkpoint thread asks libcuda (`stasis-injected-survey`).
//!
//! * [`prepare`]: puts code that no thread executes yet, and a stack, into the process. Its
//!   [`VisitRecord`] has to be kept where it survives us before the next step.
//! * [`ask`]: sends the thread there, again and again, a few milliseconds each time: other callers
//!   of the driver wait meanwhile, and would take a longer visit for a stopped process.
//! * [`remove`]: unmaps that memory, also for another process of ours that was killed.
//!
//! # If we are killed
//! A thread that was sent answers and goes back alone. Until it has, our memory cannot be removed
//! from the process ([`Removed::InUse`]).

mod ask;
mod errand;
mod error;
mod ranges;
mod record;

pub use ask::{ProcessGpuMemory, ask};
pub use errand::begin_no_more;
pub(crate) use errand::{Asked, Words, request};
pub use error::VisitError;
pub use record::{Removed, VisitRecord, prepare, remove};
pub use stasis_injected_survey::{Allocation, DEVICES, Kind};
