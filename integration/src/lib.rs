//! Test hosts, stand-in driver and workloads of stasis.

pub mod bundle;
pub mod ctr;
pub mod docker;
pub mod host;
pub mod image;
pub mod lab;
pub mod native;
pub mod podman;
