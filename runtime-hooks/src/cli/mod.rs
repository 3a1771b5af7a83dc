//! The command lines: runc's and crun's (`stasis-runtime`), and the operator's (`stasis`,
//! `cuda-checkpoint`).

pub mod answer;
pub mod check;
pub mod command_error;
pub mod cuda_checkpoint;
pub mod doctor;
pub mod documents;
pub mod gone;
pub mod images;
pub mod locate;
pub mod log;
pub mod metrics;
pub mod oci;
mod programs;
pub mod ps;
pub mod recover;
pub mod respawned;
pub mod setup;
pub mod suspend;
pub mod through_engine;
