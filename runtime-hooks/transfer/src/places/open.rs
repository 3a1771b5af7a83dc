//! Opens the place that a reference names, with credentials of a file, if one is named.

use std::path::Path;

use stasis_oci_image::{ImageLocation, OciImageError, Reference};

use crate::places::{Elsewhere, Layout, Registry};

/// Opens it to be read.
pub(crate) fn open(
    reference: &Reference,
    credentials: Option<&Path>,
) -> Result<Box<dyn Elsewhere>, OciImageError> {
    Ok(match reference.place() {
        ImageLocation::Layout(path) => Box::new(Layout::open(path)?),
        ImageLocation::Registry(name) => Box::new(Registry::open(name.clone(), credentials)?),
    })
}

/// Opens it to be written: a layout that does not exist is made.
pub(crate) fn open_or_make(
    reference: &Reference,
    credentials: Option<&Path>,
) -> Result<Box<dyn Elsewhere>, OciImageError> {
    match reference.place() {
        ImageLocation::Layout(path) => Ok(Box::new(Layout::open_or_make(path)?)),
        ImageLocation::Registry(_) => open(reference, credentials),
    }
}
