//! An engine's files beside an image, by which it makes the container again: its own files, and the
//! files that the container has written into its root file system.

use std::fs::File;
use std::path::Path;

use stasis_oci_image::{Kind, Manifest};

use crate::archive;
use crate::archive::{CHECKPOINT, WRITABLE};
use crate::error::MoveError;
use crate::places::Elsewhere;
use crate::pull::noted::unpack_blob;

/// A blob has 9 GiB at most: one that unpacks to more than this is a bomb.
const MOST_BYTES: u64 = 128 << 30;

/// Fetches an engine's files into an empty directory; `false`: the image has none.
pub(crate) fn fetch(
    from: &dyn Elsewhere,
    manifest: &Manifest,
    into: &Path,
) -> Result<bool, MoveError> {
    let Some(own) = manifest.layer(Kind::Engine) else {
        return Ok(false);
    };
    unpack_blob(from, own, into, |contents| {
        archive::unpack(contents, into, MOST_BYTES)
    })?;
    // The engine's files must not contain the image or the writable layer.
    for taken in [CHECKPOINT, WRITABLE] {
        if into.join(taken).symlink_metadata().is_ok() {
            return Err(MoveError::NoImage {
                reference: from.name(),
                what: format!("its engine's files have one that is called {taken}"),
            });
        }
    }
    if let Some(written) = manifest.layer(Kind::Writable) {
        unpack_blob(from, written, into, |contents| {
            let file = File::create_new(into.join(WRITABLE))?;
            archive::decompress(contents, file, MOST_BYTES)
        })?;
    }
    Ok(true)
}
