//! What an image that is elsewhere says of itself: its small documents, and none of its contents.

use std::path::Path;

use stasis_config::Settings;
use stasis_oci_image::{Elsewhere, Reference};

use super::super::pull::parts::Parts;
use crate::cli::command_error::MoveError;
use crate::restore::admission::described::{Described, Unfit};
use crate::restore::admission::node::Whose;

/// Reads them; and the bytes of all of the image there.
pub(in crate::cli::images) fn describe(
    reference: &Reference,
    authfile: Option<&Path>,
) -> Result<(Described, u64), MoveError> {
    let from = reference.open(authfile)?;
    let parts = Parts::find(&*from, reference)?;
    let bytes = parts.manifest.bytes();
    Ok((parts.described, bytes))
}

/// Why an image would not run here. If that cannot be told, whoever pulls it tells why.
pub(in super::super) fn unfit(
    settings: &Settings,
    from: &dyn Elsewhere,
    reference: &Reference,
) -> Option<Unfit> {
    let parts = Parts::find(from, reference).ok()?;
    parts.described.check(settings, Whose::Anybodys).err()
}
