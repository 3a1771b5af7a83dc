//! What an image that is elsewhere says of itself: its small documents, and none of its contents.

use std::path::Path;

use stasis_config::Settings;
use stasis_memory_store::Index;
use stasis_oci_image::{Elsewhere, Reference};

use super::super::pull::parts::Parts;
use crate::cli::command_error::MoveError;
use crate::image::manifest::{FILE_NAME, Manifest};
use crate::restore::admission::described::{Described, Unfit};
use crate::restore::admission::node::Whose;

/// Reads them; and the bytes of all of the image there.
///
/// # Errors
/// [`MoveError`].
pub(in crate::cli::images) fn describe(
    reference: &Reference,
    authfile: Option<&Path>,
) -> Result<(Described, u64), MoveError> {
    let from = reference.open(authfile)?;
    let (manifest, _) = from.manifest(reference.tag())?;
    let parts = Parts::read(&*from, &manifest, reference)?;
    Ok((described(&parts)?, manifest.bytes()))
}

/// Why an image would not run here. If that cannot be told, whoever pulls it tells why.
pub(in super::super) fn unfit(
    settings: &Settings,
    from: &dyn Elsewhere,
    reference: &Reference,
) -> Option<Unfit> {
    let (manifest, _) = from.manifest(reference.tag()).ok()?;
    let parts = Parts::read(from, &manifest, reference).ok()?;
    let image = described(&parts).ok()?;
    image.check(settings, Whose::Anybodys).err()
}

/// The same of what was read.
///
/// # Errors
/// [`MoveError`].
pub(super) fn described(parts: &Parts) -> Result<Described, MoveError> {
    let manifest = Manifest::from_text(Path::new(FILE_NAME), &parts.config);
    let manifest = manifest.map_err(MoveError::refused)?;
    let index = parts.index.as_deref().map(Index::decode).transpose()?;
    Ok(Described::of(manifest, index.as_ref()))
}
