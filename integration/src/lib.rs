//! The base of the end-to-end tests. Each room uses only those above it:
//!
//! * [`check`]: waiting for a state, process trees, assertions on texts;
//! * [`host`]: test hosts, stasis installed in them, the stand-in driver and the workloads, images;
//! * [`client`]: callers of stasis: ctr, containerd's API, CRI, podman, Docker, and our shim;
//! * [`container`]: containers to checkpoint, and their leaks;
//! * [`faults`]: faults at a step of a program, found by counting its system calls;
//! * [`load`]: many containers and processes at once, and a containerd that is killed meanwhile;
//! * [`campaign`]: containers to which everything happens, and the judge of their outcomes;
//! * [`node`]: a machine with systemd and another kernel.

#[cfg(feature = "clients")]
pub mod campaign;
pub mod check;
pub mod client;
#[cfg(feature = "clients")]
pub mod container;
#[cfg(feature = "clients")]
pub mod faults;
pub mod host;
#[cfg(feature = "clients")]
pub mod load;
#[cfg(feature = "clients")]
pub mod node;
#[cfg(test)]
mod structure;
