//! An order to all CUDA processes of a container, and what has become of it.

use std::time::Duration;

use super::arguments::Operation as Asked;
use crate::cuda::GpuMap;
use crate::low_level::hook::owed::RanHook;

/// An order to a container.
pub(super) struct Order {
    pub(super) asked: Asked,
    /// How long locking may take, if not as long as the settings say.
    pub(super) lock_timeout: Option<Duration>,
    /// Where GPU contents go.
    pub(super) map: GpuMap,
}

/// Whether an operation has changed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Made,
    /// Everything was as it was asked for.
    None,
}

/// What was done on the way, also by an operation that failed.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// What was done in another way, and what hooks have said.
    pub(super) notes: Vec<String>,
    /// The hooks that were run.
    pub(super) hooks: Vec<RanHook>,
}

/// What an operation has to say.
pub(super) struct Answer {
    /// A query's: one line for each process.
    pub(super) text: String,
    pub(super) change: Change,
}
