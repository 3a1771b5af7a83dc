//! Images that a container was to begin with, and that are damaged or not complete, or with which
//! the last ones ended as soon as they had begun: the one before is taken in their place. A machine
//! that has lost power leaves such images; a job that goes on from a little earlier has lost less
//! than one that starts cold.

use std::path::{Path, PathBuf};

use crate::error::first_image::NoFirstImage;
use crate::error::kind::Kind;
use crate::error::{Refusal, chain};
use crate::restore::at_create::newest::Here;

/// Those of one key, the latest first, and what is wrong with each.
#[derive(Debug, Default)]
pub(super) struct PassedOver(Vec<(PathBuf, Refusal)>);

impl PassedOver {
    pub(super) fn has(&self, image: &Path) -> bool {
        self.0.iter().any(|(passed_over, _)| passed_over == image)
    }

    /// Adds an image, if it is its own fault that it cannot be restored.
    ///
    /// # Errors
    /// The reason, if it is another, or if the image has been passed over before.
    pub(super) fn add(&mut self, image: &Path, why: Refusal) -> Result<(), Refusal> {
        if why.kind() != Kind::ImageDamaged || self.has(image) {
            return Err(why);
        }
        self.0.push((image.to_owned(), why));
        Ok(())
    }

    /// The newest of those that are whole, and whose containers have ended soon.
    pub(super) fn newest_that_ends_soon(&self) -> Option<Here<'_>> {
        self.0.iter().find_map(|(image, why)| match why {
            Refusal::FirstImage(NoFirstImage::EndsSoon { created, .. }) => Some(Here {
                name: image.file_name()?.to_str()?,
                created,
            }),
            _ => None,
        })
    }

    /// Why there is no image, if none is left: what is wrong with the latest one says more.
    pub(super) fn why_none(self, found: Refusal) -> Refusal {
        match found {
            Refusal::FirstImage(NoFirstImage::Missing(_)) => {
                let latest = self.0.into_iter().next();
                latest.map_or(found, |(_, why)| why)
            }
            other => other,
        }
    }

    /// What is to be noted of each, once an image is taken in their place.
    pub(super) fn notes(&self, taken: &Path) -> impl Iterator<Item = String> {
        let taken = taken.display();
        self.0.iter().map(move |(image, why)| {
            let (image, why) = (image.display(), chain(why));
            format!("{image} is passed over, and {taken} taken in its place: {why}")
        })
    }
}
