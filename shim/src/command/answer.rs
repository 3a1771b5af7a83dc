//! The answer of a command, on standard output.

use std::io::{self, Write};

use containerd_shim::protos::protobuf::Message;

use crate::command::error::{CommandError, Result};
use crate::io_error::IoError;

/// Encodes a message.
pub(super) fn encode(message: &impl Message) -> Result<Vec<u8>> {
    message
        .write_to_bytes()
        .map_err(|error| CommandError::Encode(error.to_string()))
}

/// Writes an answer to containerd.
pub(super) fn write(answer: &[u8]) -> Result<()> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(answer).and_then(|()| stdout.flush());
    Ok(written.map_err(IoError::cannot("answer containerd"))?)
}
