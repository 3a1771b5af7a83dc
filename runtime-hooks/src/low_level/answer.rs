//! What the low-level runtime says of a container.

use std::ffi::OsString;
use std::io;
use std::process::{Output, Stdio};
use std::time::Duration;

use stasis_config::LowLevel;

use crate::low_level::watch::Victims;
use crate::low_level::{Ran, capture, command};

/// What it answers to a question.
///
/// # Errors
/// An error of starting or awaiting the process; [`io::ErrorKind::TimedOut`] of one that did
/// nothing for longer than `limit`, and was ended.
pub(crate) fn answer(
    low_level: &LowLevel,
    args: &[OsString],
    limit: Duration,
) -> io::Result<Output> {
    let mut command = command(low_level, args);
    let Ran { output, hung } = capture(command.stdin(Stdio::null()), limit, Victims::All)?;
    match hung {
        None => Ok(output),
        Some(hung) => Err(io::Error::new(io::ErrorKind::TimedOut, hung)),
    }
}
