//! The output of a command, in a file in memory: processes that the command starts may keep a pipe
//! open, so that its end would never be seen.

use std::fs::File;
use std::io::{self, Read, Seek};

use rustix::fs::{MemfdFlags, memfd_create};

/// Makes the file.
pub fn file_for_output() -> io::Result<File> {
    Ok(memfd_create("stasis-output", MemfdFlags::CLOEXEC)?.into())
}

/// Reads the output in the file, up to `limit` bytes.
pub fn output_in(mut file: &File, limit: u64) -> io::Result<String> {
    let mut text = Vec::new();
    file.rewind()?;
    file.take(limit).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).trim().to_owned())
}
