//! The verbs of the operator's programs, `stasis` and `cuda-checkpoint`: one folder each.

pub mod answer;
pub mod check;
pub mod command_error;
pub mod cuda_checkpoint;
pub mod doctor;
pub mod documents;
#[cfg(test)]
#[path = "../../engine/src/bulk_memory/places/tests/fixtures.rs"]
mod fixtures;
pub mod images;
pub mod log;
pub mod metrics;
mod programs;
pub mod ps;
pub mod recover;
pub mod setup;
pub mod suspend;
pub mod through_engine;
pub mod usage;
pub mod version;
