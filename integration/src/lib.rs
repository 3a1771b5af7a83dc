//! What the end-to-end tests stand on. Each room uses only those above it:
//!
//! * [`check`]: waiting for a state, process trees, texts that have to say something;
//! * [`host`]: test hosts, stasis installed in them, the stand-in driver and the workloads, images;
//! * [`client`]: callers of stasis: ctr, containerd's API, CRI, podman, Docker, and our shim;
//! * [`container`]: containers to checkpoint, and what they may leave behind;
//! * [`node`]: a machine with systemd and another kernel.

pub mod check;
pub mod client;
pub mod container;
pub mod host;
pub mod node;
#[cfg(test)]
mod structure;
