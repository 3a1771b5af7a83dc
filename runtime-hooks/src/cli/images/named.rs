//! What a user calls an image: a directory, or a name elsewhere.

use std::path::Path;

use stasis_oci_image::{OciImageError, Reference};

/// What is no file here may be one elsewhere.
pub(super) fn reference(named: &Path) -> Option<Result<Reference, OciImageError>> {
    let text = named.to_str().filter(|_| !named.exists())?;
    let reference = text.parse();
    match reference {
        Err(_) if !text.starts_with("oci:") => None,
        known => Some(known),
    }
}
