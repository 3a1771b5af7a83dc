//! The answer of a command, on standard output.

use std::io::{self, Write};

use containerd_shim::protos::protobuf::Message;

use crate::error::{Error, Result};

/// Encodes a message.
pub(super) fn encode(message: &impl Message) -> Result<Vec<u8>> {
    Ok(message.write_to_bytes()?)
}

/// Writes an answer to containerd.
pub(super) fn write(answer: &[u8]) -> Result<()> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(answer).and_then(|()| stdout.flush());
    written.map_err(Error::cannot("answer containerd"))
}
