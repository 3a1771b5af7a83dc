//! The private interface between the shim and `stasis-runtime`, which are installed together but
//! need not be of one version: a shim lives as long as its containers, and calls the
//! `stasis-runtime` that is installed now.
//!
//! The version counts the features that a shim relies on and runc lacks: our own options, the
//! fields `kind`, `state` and `criu_log` of the log, the effect of SIGTERM in an operation, and the
//! name of the process. A change that a caller of the earlier version could misunderstand raises
//! it; the earlier one then stays in [`SERVED`] as long as its callers can be served.

use std::ops::RangeInclusive;

/// The option with which a shim reports its version, before the verb and with "=":
/// `--stasis-interface=1`. Other callers, who use runc's command line alone, do not give it.
pub const OPTION: &str = "stasis-interface";

/// The version that a shim of this build speaks.
pub const VERSION: u32 = 1;

/// The versions that `stasis-runtime` of this build serves.
pub const SERVED: RangeInclusive<u32> = 1..=VERSION;
