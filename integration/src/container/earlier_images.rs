//! The images that earlier versions of stasis have made, which are kept in `earlier-images`.

use std::path::{Path, PathBuf};

/// The manifest versions that there is an image of: all before the one that is written now.
pub const VERSIONS: [u32; 3] = [1, 2, 3];
/// The name of their container's bundle.
pub const BUNDLE: &str = "bundle";
/// The container's id, which is also its tag for faults of the stand-in.
pub const ID: &str = "pages";

/// The directory of all archives.
#[must_use]
pub(crate) fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("earlier-images")
}

/// The archive of the image of a version, or of the bundle.
#[must_use]
pub fn archive(name: &str) -> PathBuf {
    directory().join(format!("{name}.tar.gz"))
}
