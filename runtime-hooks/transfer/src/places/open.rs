//! Opens the place that a reference names.

use std::path::Path;

use stasis_oci_image::{ImageLocation, OciImageError, Reference};

use crate::places::{Elsewhere, Layout, Registry};

/// A reference whose place can be opened, with credentials of a file, if one is named.
pub(crate) trait Open {
    /// The place, to be read.
    ///
    /// # Errors
    /// The layout or the credentials cannot be read.
    fn open(&self, credentials: Option<&Path>) -> Result<Box<dyn Elsewhere>, OciImageError>;

    /// The place, to be written: a layout that does not exist is made.
    ///
    /// # Errors
    /// As [`Open::open`].
    fn open_or_make(&self, credentials: Option<&Path>)
    -> Result<Box<dyn Elsewhere>, OciImageError>;
}

impl Open for Reference {
    fn open(&self, credentials: Option<&Path>) -> Result<Box<dyn Elsewhere>, OciImageError> {
        Ok(match self.place() {
            ImageLocation::Layout(path) => Box::new(Layout::open(path)?),
            ImageLocation::Registry(name) => Box::new(Registry::open(name.clone(), credentials)?),
        })
    }

    fn open_or_make(
        &self,
        credentials: Option<&Path>,
    ) -> Result<Box<dyn Elsewhere>, OciImageError> {
        match self.place() {
            ImageLocation::Layout(path) => Ok(Box::new(Layout::open_or_make(path)?)),
            ImageLocation::Registry(_) => self.open(credentials),
        }
    }
}
