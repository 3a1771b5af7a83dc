//! The private interface between our programs, which are installed together but need not be of one
//! version. A shim lives as long as its containers, and calls the `stasis-runtime` that is
//! installed now. That starts transfers of images from the `stasis` beside it, which an upgrade
//! replaces first.
//!
//! The version counts the features that a shim relies on and runc lacks: our own options, the
//! fields `kind`, `state` and `criu_log` of the log, the effect of SIGTERM in an operation, and the
//! name of the process; and the verbs, jobs and messages of transfers. A change that a caller of
//! the earlier version could misunderstand raises it; the earlier one then stays in [`SERVED`] as
//! long as its callers can be served.

use std::ops::RangeInclusive;

/// The option with which a shim reports its version, before the verb and with "=":
/// `--stasis-interface=1`; the runtime does so behind the verb of a transfer. Other callers, who
/// use runc's command line alone, do not give it.
pub const OPTION: &str = "stasis-interface";

/// The version that a caller of this build speaks.
pub const VERSION: u32 = 1;

/// The versions that programs of this build serve.
pub const SERVED: RangeInclusive<u32> = 1..=VERSION;

/// Returns the argument by which a caller of this build reports its version.
#[must_use]
pub fn argument() -> String {
    format!("--{OPTION}={VERSION}")
}
