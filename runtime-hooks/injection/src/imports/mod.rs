//! Memory that locked processes have from each other: whose it is, given up before a checkpoint,
//! and mapped again after the restore.
//!
//! A process that has some is lost by its restore (driver 580.159). All of it is done by the
//! driver's own checkpoint threads, with what [`survey::prepare`](crate::survey::prepare) has put
//! into each process, while they are LOCKED:
//!
//! * [`identify`]: which memory of whose an import is.
//! * [`drop_imports`]: it is given up. May be done again.
//! * [`export`] in the owner, [`import`] in the other: it is as it was. May be done again, too.
//! * [`rehearse`]: whether that can be, before anything is given up.
//!
//! # If we are killed
//! The threads wait for us two seconds at most, take back what they have made (tags in GPU memory,
//! descriptors) and end by themselves. How many references an import had is known to us alone, and
//! to whoever was told before the next step.

mod drop_import;
mod export;
mod identify;
mod import;

use serde::{Deserialize, Serialize};
use stasis_linux::ProcessRef;

use crate::survey::SurveyRecord;

pub use drop_import::drop_imports;
pub use export::export;
pub use identify::identify;
pub use import::{import, rehearse};

/// Memory of another process that is mapped in this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Import {
    /// Where it begins.
    pub address: u64,
    /// In bytes.
    pub bytes: u64,
    /// By bits: the devices that may use it.
    pub access: u64,
    /// The references that the program has beside the mapping.
    pub references: u64,
}

/// A place in GPU memory, and a device whose context may use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// 16 bytes are there, at least.
    pub address: u64,
    /// Its ordinal.
    pub device: u64,
}

/// A process with code of ours in it.
#[derive(Debug, Clone, Copy)]
pub struct Visited<'p> {
    /// It is LOCKED, and stays so.
    pub process: &'p ProcessRef,
    /// What was put into it.
    pub record: &'p SurveyRecord,
}

/// What of a process may be others', or others may have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Members {
    /// Memory of its own.
    pub own: Vec<Place>,
    /// What may be memory of others.
    pub candidates: Vec<Place>,
}
