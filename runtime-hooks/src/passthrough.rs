//! What is not ours: the low-level runtime takes our place.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Becomes the low-level runtime, with its arguments, our environment and all inherited
/// descriptors: output, exit code and parent are then its own. Comes back only with an error.
#[must_use]
pub fn exec(low_level: &Path, args: Vec<OsString>) -> io::Error {
    Command::new(low_level).args(args).exec()
}
