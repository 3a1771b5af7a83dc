//! Test hosts, stand-in driver and workloads of stasis.

pub mod bundle;
pub mod containerd;
pub mod cri;
pub mod ctr;
pub mod deadline;
pub mod descendant;
pub mod docker;
pub mod gpu_task;
pub mod holder;
pub mod host;
pub mod image;
pub mod lab;
pub mod message;
pub mod native;
pub mod podman;
pub mod registry;
pub mod remains;
pub mod shim;
pub mod victim;
