//! The private interface between the shim and `stasis-runtime`, which are installed together but
//! need not be of one version: a shim lives as long as its containers, and calls the
//! `stasis-runtime` that is installed now.
//!
//! The version counts what a shim relies on and runc does not have: our own options, the fields
//! `kind`, `state` and `criu_log` of the log, what SIGTERM does in an operation, and how the
//! process is named. It is raised when a caller of the version before could misunderstand; then the
//! older one stays in [`SERVED`] as long as its callers can be served.

use std::ops::RangeInclusive;

/// The option with which a shim says its version, before the verb and with "=":
/// `--stasis-interface=1`. Other callers, who use runc's command line alone, do not give it.
pub const OPTION: &str = "stasis-interface";

/// The version that a shim of this build speaks.
pub const VERSION: u32 = 1;

/// The versions that `stasis-runtime` of this build serves.
pub const SERVED: RangeInclusive<u32> = 1..=VERSION;
