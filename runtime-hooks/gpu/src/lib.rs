//! The GPU state of processes: the driver that locks, checkpoints, restores and unlocks them
//! ([`cuda`]), the path of their GPU memory to files and back ([`gpu_path`]), and the memory that
//! operations reserve on this machine ([`ledger`]).
//!
//! Nothing here knows containers, images or operations.

pub mod cuda;
pub mod gpu_path;
pub mod ledger;

#[cfg(test)]
extern crate self as stasis_gpu;
