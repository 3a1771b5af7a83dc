//! Blobs that are unpacked as they come, by libraries that replace the errors of their readers.

use std::io::{self, Read};
use std::path::Path;

use stasis_oci_image::Descriptor;
use stasis_oci_image::digest::Hashed;

use crate::error::MoveError;
use crate::places::Elsewhere;

/// Has `unpack` read a blob, reads the rest itself, and compares the digest of all.
pub(crate) fn unpack_blob(
    from: &dyn Elsewhere,
    blob: &Descriptor,
    into: &Path,
    unpack: impl FnOnce(&mut dyn Read) -> io::Result<()>,
) -> Result<(), MoveError> {
    let mut contents = Noted {
        inner: Hashed::new(from.reader(blob, 0)?),
        failed: None,
    };
    let unpacked = unpack(&mut contents);
    let unpacked = contents.failed.take().map_or(unpacked, Err);
    unpacked.map_err(MoveError::io("unpack files into", into))?;
    let mut contents = contents.inner;
    let rest = io::copy(&mut contents, &mut io::sink());
    rest.map_err(MoveError::io("read files for", into))?;
    Ok(blob.check(contents)?)
}

/// Reads, and keeps the original error.
struct Noted<R> {
    inner: R,
    failed: Option<io::Error>,
}

impl<R: Read> Read for Noted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.inner.read(into).map_err(|error| {
            let kind = error.kind();
            // Readers retry this error themselves.
            if kind != io::ErrorKind::Interrupted {
                self.failed = Some(error);
            }
            kind.into()
        })
    }
}
