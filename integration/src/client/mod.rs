//! The programs and APIs by which users come to stasis.

pub mod answer;
#[cfg(feature = "clients")]
pub mod containerd;
#[cfg(feature = "clients")]
pub mod cri;
pub mod ctr;
pub mod docker;
pub mod podman;
#[cfg(feature = "clients")]
pub mod shim;
