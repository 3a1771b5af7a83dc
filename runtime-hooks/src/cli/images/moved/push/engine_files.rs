//! What an engine has put beside an image, on its way to where registries' images are.

use std::path::Path;

use stasis_linux::file;
use stasis_oci_image::Kind;
use stasis_oci_image::archive::{self, Compression};

use super::super::engine::{CHECKPOINT, WRITABLE};
use super::outgoing::{Outgoing, Waiting};
use crate::cli::command_error::MoveError;

/// Makes blobs of an engine's files.
///
/// # Errors
/// [`MoveError`].
pub(super) fn gather<'p>(
    into: &Outgoing<'_, 'p>,
    beside: &Path,
) -> Result<Vec<Waiting<'p>>, MoveError> {
    let failed = || MoveError::io("pack the engine's files in", beside);
    let is_own = |name: &str| name != CHECKPOINT && name != WRITABLE;
    let own = into.gather(
        Kind::Engine,
        "what the engine has put beside the image",
        |blob| archive::pack(beside, is_own, Compression::Zstd, blob).map_err(failed()),
    )?;
    let mut blobs = vec![own];
    let written = file::open(&beside.join(WRITABLE)).map_err(failed())?;
    if let Some(written) = written {
        blobs.push(
            into.gather(Kind::Writable, "the container's writable layer", |blob| {
                archive::compress(written, blob).map_err(failed())
            })?,
        );
    }
    Ok(blobs)
}
