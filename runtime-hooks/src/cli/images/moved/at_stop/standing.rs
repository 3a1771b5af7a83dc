//! Which of two images of a key is the later one: this one, or that of the registry.

use stasis_oci_image::document::annotations::{CREATED, IMAGE};
use stasis_oci_image::{Digest, Manifest, OciImageError, Tagged};

use super::latest::{Latest, behind};
use crate::host::time::rfc3339;
use crate::image::manifest;
use crate::image::stopped::LATEST;
use crate::restore::at_create::newest::Here;

/// How the latest image of the registry stands to this one.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// There is none, or it is of an earlier stop.
    Earlier,
    /// It is this one.
    This,
    /// It is of a later stop, and has this name.
    Later(String),
}

impl Latest {
    /// How the latest image of the registry stands to this one, or the one before what is being
    /// made.
    pub(super) fn standing(&self) -> Result<Standing, OciImageError> {
        let registry = self.for_a_moment()?;
        let tagged = registry.tagged(LATEST)?;
        Ok(match behind(&registry, &tagged)? {
            Some((other, _)) if self.is_earlier_than(&other) => Standing::Later(name_of(&other)),
            Some((other, _)) if self.is_it(&other) && is_image(&tagged) => Standing::This,
            _ => Standing::Earlier,
        })
    }

    /// The image, if it is in the registry under its own tag.
    pub(super) fn pushed_before(&self, tag: &str) -> Result<Option<Digest>, OciImageError> {
        match self.for_a_moment()?.tagged(tag)? {
            Tagged::Image(image, digest) if self.is_it(&image) => Ok(Some(digest)),
            _ => Ok(None),
        }
    }

    /// By the time of the stop; of an image that no stop has made, by its own.
    pub(super) fn is_earlier_than(&self, other: &Manifest) -> bool {
        let here = Here {
            name: &self.image,
            created: &rfc3339(self.began),
        };
        here.is_before(other)
    }

    /// Another host may have stopped a container in the same millisecond.
    fn is_it(&self, other: &Manifest) -> bool {
        let own = manifest::Manifest::read(&self.directory).ok().flatten();
        let is_made_then = own.is_some_and(|own| other.annotation(CREATED) == Some(&own.created));
        is_made_then && other.annotation(IMAGE) == Some(&self.image)
    }
}

fn is_image(tagged: &Tagged) -> bool {
    matches!(tagged, Tagged::Image(..))
}

fn name_of(image: &Manifest) -> String {
    let name = image.annotation(IMAGE).or(image.annotation(CREATED));
    name.unwrap_or(LATEST).to_owned()
}
