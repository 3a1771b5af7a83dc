//! The answer of a command, on standard output.

use std::io::{self, Write};

use crate::error::{Error, Result};

/// Writes an answer to containerd.
pub(super) fn write(answer: &[u8]) -> Result<()> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(answer).and_then(|()| stdout.flush());
    written.map_err(Error::cannot("answer containerd"))
}
