//! Test hosts, stand-in driver and workloads of stasis.

pub mod host;
pub mod image;
