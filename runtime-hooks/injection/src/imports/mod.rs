//! Memory that locked processes have from each other: its owner is found, it is given up before a
//! checkpoint, and mapped again after the restore.
//!
//! A process that has such memory is lost by its restore (driver 580.159). The driver's own
//! checkpoint threads do all of it, with the code that [`survey::prepare`](crate::survey::prepare)
//! has put into each process, while the processes are LOCKED:
//!
//! * [`identify`]: finds the owner of each import.
//! * [`drop_imports`]: gives imports up. May be repeated.
//! * [`export`] in the owner, [`import`] in the other: restores imports. May be repeated, too.
//! * [`rehearse`]: tries whether they can be restored, before any is given up.
//!
//! # If we are killed
//! The threads wait for us two seconds at most, take back the tags (in GPU memory) and descriptors
//! that they have made, and end by themselves. How many references an import had is known to us
//! alone, and to the process that received it before the next step.

mod drop_import;
mod export;
mod identify;
mod import;

use serde::{Deserialize, Serialize};
use stasis_linux::ProcessRef;

use crate::survey::VisitRecord;

pub use drop_import::drop_imports;
pub use export::export;
pub use identify::identify;
pub use import::{import, rehearse};

/// Memory of another process that is mapped in this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Import {
    /// First address.
    pub address: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// By bits: the devices that may use it.
    pub access: u64,
    /// The references that the program has beside the mapping.
    pub references: u64,
    /// The value of its handle, which the program may have kept.
    pub handle: u64,
}

/// A place in GPU memory, and a device whose context may use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuAddress {
    /// Address of at least 16 bytes.
    pub address: u64,
    /// Ordinal of the device.
    pub device: u64,
}

/// A process with code of ours in it.
#[derive(Debug, Clone, Copy)]
pub struct Visited<'p> {
    /// A process that is LOCKED, and stays so.
    pub process: &'p ProcessRef,
    /// The record of our code in it.
    pub record: &'p VisitRecord,
}

/// Memory of a process that may be another's, or that others may have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Members {
    /// Memory of the process.
    pub own: Vec<GpuAddress>,
    /// Memory that may be another process's.
    pub candidates: Vec<GpuAddress>,
}
