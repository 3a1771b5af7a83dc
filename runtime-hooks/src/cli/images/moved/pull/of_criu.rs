//! CRIU's files: the small ones come in one blob, and the large ones are made of packs that come
//! before, and then go.

use std::io;

use stasis_config::Settings;
use stasis_linux::file;
use stasis_memory_store::write_files;
use stasis_oci_image::digest::Hashed;
use stasis_oci_image::{Elsewhere, bundle};

use super::super::noted::Noted;
use super::super::staging::Staging;
use super::fetch_lacking;
use super::parts::Parts;
use crate::cli::command_error::MoveError;

/// Fetches all that CRIU's files are made of, and makes them.
///
/// # Errors
/// [`MoveError`].
pub(in super::super) fn fetch_criu(
    settings: &Settings,
    from: &dyn Elsewhere,
    parts: &Parts,
    staging: &Staging,
) -> Result<(), MoveError> {
    fetch_lacking(from, parts.packs_of_files().iter(), staging)?;
    make_criu(settings, from, parts, staging)
}

/// Makes CRIU's files: the packs of the large ones are there.
pub(super) fn make_criu(
    settings: &Settings,
    from: &dyn Elsewhere,
    parts: &Parts,
    staging: &Staging,
) -> Result<(), MoveError> {
    let (large, small) = parts.of_criu();
    let mut contents = Noted::new(Hashed::new(from.reader(&parts.criu)?));
    let unpacked = bundle::unpack(&mut contents, &small, staging.path());
    let unpacked = contents.failed().map_or(unpacked, Err);
    unpacked.map_err(MoveError::io("unpack CRIU's files into", staging.path()))?;
    let mut contents = contents.inner;
    let rest = io::copy(&mut contents, &mut io::sink());
    rest.map_err(MoveError::io("read CRIU's files for", staging.path()))?;
    parts.criu.check(contents)?;
    if let Some(pieces) = &parts.pieces {
        let threads = settings.gpu_contents.threads_on_disk();
        write_files(staging.path(), pieces, &large, threads)?;
    }
    for (pack, _) in parts.packs_that_go() {
        let path = staging.path().join(pack.file_name());
        file::remove(&path).map_err(MoveError::io("remove", &path))?;
    }
    Ok(())
}
