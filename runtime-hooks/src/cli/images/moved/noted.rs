//! Blobs that are unpacked as they come, through others, who have their own words for what failed
//! below them.

use std::io::{self, Read};
use std::path::Path;

use stasis_oci_image::digest::Hashed;
use stasis_oci_image::{Descriptor, Elsewhere};

use crate::cli::command_error::MoveError;

/// Has `unpack` read a blob, reads what it leaves, and compares the digest of all.
pub(super) fn unpack_blob(
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

/// Reads, and keeps the error as it came.
struct Noted<R> {
    inner: R,
    failed: Option<io::Error>,
}

impl<R: Read> Read for Noted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.inner.read(into).map_err(|error| {
            let kind = error.kind();
            // Whoever reads tries again by himself.
            if kind != io::ErrorKind::Interrupted {
                self.failed = Some(error);
            }
            kind.into()
        })
    }
}
