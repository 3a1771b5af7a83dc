//! The engine of stasis: checkpoint and restore of running GPU containers.

pub mod cuda;

