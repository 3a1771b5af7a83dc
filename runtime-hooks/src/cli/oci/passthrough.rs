//! Replaces this process by the low-level runtime, for operations that stasis does not change.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use stasis_linux::open_files::keep_callers_limit;

use crate::host::environment;

/// Executes the low-level runtime in place of this process, with our environment, but for what
/// would have other code run in it or in CRIU, and all inherited descriptors, so its caller sees
/// its output and exit code. Returns only with an error.
#[must_use]
pub fn exec(low_level: &Path, args: Vec<OsString>) -> io::Error {
    let mut command = Command::new(low_level);
    keep_callers_limit(&mut command);
    environment::clean(&mut command);
    command.args(args).exec()
}
