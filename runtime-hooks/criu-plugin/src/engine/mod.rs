//! What the plugin and stasis's engine exchange by files: the engine's [`request`], and from here
//! the [`progress`] and the [`report`]. Their formats are in the crate `stasis-memory-store`.

pub(crate) mod progress;
pub(crate) mod report;
pub(crate) mod request;
