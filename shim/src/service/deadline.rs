//! The deadline of a call.

use std::time::{Duration, Instant};

use containerd_shim::TtrpcContext;

/// When the caller stops waiting; `None` if it has not said so.
pub(super) fn deadline(context: &TtrpcContext) -> Option<Instant> {
    let left = u64::try_from(context.timeout_nano).ok();
    let left = left.filter(|nanoseconds| *nanoseconds > 0)?;
    Instant::now().checked_add(Duration::from_nanos(left))
}
