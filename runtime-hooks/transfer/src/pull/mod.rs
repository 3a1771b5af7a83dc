//! Pulls images from registries and layouts: into a directory, into an engine's archive, or in the
//! background.

mod archived;
pub(crate) mod arriving;
mod engine_files;
mod noted;
pub(crate) mod parts;
mod staging;
pub(crate) mod whole;

use std::fmt;
use std::path::{Path, PathBuf};

use stasis_config::Settings;
use stasis_engine::restore::admission::described::{Described, Unfit};
use stasis_engine::restore::admission::node::Whose;
use stasis_oci_image::Reference;

use crate::error::MoveError;
use crate::local::origin::Origin;
use crate::moved::Moved;
use crate::places::{Elsewhere, open};
use archived::{is_archive, pull_archive};
use arriving::arrive::{has_arrived_in_part, resume_pull};
pub use arriving::background::{Begun, begin};
pub use parts::Documents;
use parts::Parts;
use whole::pull;

/// An image elsewhere that can be pulled: its small parts have been read.
pub struct Incoming {
    authfile: Option<PathBuf>,
    from: Box<dyn Elsewhere>,
    parts: Parts,
}

impl Incoming {
    /// Finds an image; credentials are in a file, or root's own.
    ///
    /// # Errors
    /// There is no such image, or its parts do not fit together; a layout lacks one of its blobs.
    pub fn find(reference: &Reference, authfile: Option<&Path>) -> Result<Self, MoveError> {
        let from = open(reference, authfile)?;
        let parts = Parts::find(&*from, reference)?;
        from.expect(&parts.manifest)?;
        Ok(Self {
            parts,
            from,
            authfile: authfile.map(Path::to_owned),
        })
    }

    /// Returns its own description, and the bytes of all of it.
    #[must_use]
    pub fn described(self) -> (Described, u64) {
        (self.parts.described, self.parts.manifest.bytes())
    }

    /// Checks whether it would run here.
    ///
    /// # Errors
    /// Why it would not.
    pub fn fits(&self, settings: &Settings) -> Result<(), Unfit> {
        self.parts.described.check(settings, Whose::Anybodys)
    }

    /// Pulls it into a new or empty directory, or a new archive: a name that ends in `.tar` or
    /// `.tar.zst`. Goes on with an interrupted pull.
    ///
    /// # Errors
    /// There is no image then, unless it was there before.
    pub fn pull(&self, settings: &Settings, into: &Path) -> Result<Moved, MoveError> {
        let (from, parts) = (&*self.from, &self.parts);
        let pulled = if is_archive(into) {
            pull_archive(settings, from, parts, into)?
        } else if has_arrived_in_part(into)? {
            resume_pull(settings, from, parts, self.authfile.as_deref(), into)?
        } else {
            pull(settings, from, parts, into)?
        };
        if pulled.image.is_dir() {
            Origin::note_pulled(&pulled.image, pulled.place());
        }
        Ok(pulled)
    }
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Incoming({})", self.parts.reference)
    }
}
