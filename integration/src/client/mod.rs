//! The programs and APIs by which users come to stasis.

pub mod containerd;
pub mod cri;
pub mod ctr;
pub mod docker;
pub mod podman;
pub mod shim;
