//! Images that a container was to begin with, but that are damaged or incomplete, or whose last
//! containers ended as soon as they had begun: the image before is taken in their place. A machine
//! that has lost power leaves such images; a job that resumes from a little earlier has lost less
//! than one that starts cold.

use std::path::{Path, PathBuf};

use crate::at_create::newest::LocalImage;
use crate::at_create::no_first_image::{NoFirstImage, is_missing, no_first_image};
use stasis_engine::error::kind::Kind;
use stasis_engine::error::{Refusal, chain};

/// The images of one key that are passed over, the latest first, each with its fault.
#[derive(Debug, Default)]
pub(super) struct PassedOver(Vec<(PathBuf, Refusal)>);

impl PassedOver {
    pub(super) fn has(&self, image: &Path) -> bool {
        self.0.iter().any(|(passed_over, _)| passed_over == image)
    }

    /// Adds an image, if its restore fails by its own fault.
    ///
    /// # Errors
    /// The reason, if it is not the image's fault, or if the image has been passed over before.
    pub(super) fn add(&mut self, image: &Path, why: Refusal) -> Result<(), Refusal> {
        if why.kind() != Kind::ImageDamaged || self.has(image) {
            return Err(why);
        }
        self.0.push((image.to_owned(), why));
        Ok(())
    }

    /// Returns the newest whole image whose containers have ended soon.
    pub(super) fn newest_that_ends_soon(&self) -> Option<LocalImage> {
        self.0
            .iter()
            .find_map(|(image, why)| match no_first_image(why) {
                Some(NoFirstImage::EndsSoon { created, .. }) => Some(LocalImage {
                    name: image.file_name()?.to_str()?.to_owned(),
                    created: created.clone(),
                }),
                _ => None,
            })
    }

    /// Returns why no image is left: the fault of the latest one says more than `found`.
    pub(super) fn why_none(self, found: Refusal) -> Refusal {
        let latest = self.0.into_iter().next().map(|(_, why)| why);
        latest.filter(|_| is_missing(&found)).unwrap_or(found)
    }

    /// Returns a note on each, once an image is taken in their place.
    pub(super) fn notes(&self, taken: &Path) -> impl Iterator<Item = String> {
        let taken = taken.display();
        self.0.iter().map(move |(image, why)| {
            let (image, why) = (image.display(), chain(why));
            format!("{image} is passed over, and {taken} taken in its place: {why}")
        })
    }
}
