//! A user's name of an image that is elsewhere.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::{Digest, OciImageError, RepositoryName};

const LAYOUT: &str = "oci:";
/// A tag has no more (OCI distribution, "Pulling manifests").
const MOST_TAG: usize = 128;

/// An image: in an OCI layout, `oci:/DIRECTORY:TAG`, or in a registry, `REGISTRY/REPOSITORY:TAG`,
/// as skopeo and podman name them; or with `@sha256:DIGEST` in the place of `:TAG`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    place: ImageLocation,
    /// A tag, or a digest: no tag has a colon.
    version: String,
}

/// Where an image is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageLocation {
    /// The directory of an OCI layout.
    Layout(PathBuf),
    /// A repository of a registry.
    Registry(RepositoryName),
}

impl Reference {
    /// Returns the tag or the digest of the image.
    pub fn tag(&self) -> &str {
        &self.version
    }

    /// Returns the tag that an image gets there.
    ///
    /// # Errors
    /// [`OciImageError::Reference`] for a digest, which cannot be given to an image.
    pub fn new_tag(&self) -> Result<&str, OciImageError> {
        match is_tag(&self.version) {
            true => Ok(&self.version),
            false => Err(OciImageError::Reference {
                text: self.to_string(),
                what: "a digest cannot be given to an image; name a tag",
            }),
        }
    }

    /// Returns the reference to the image of this digest in the same place.
    #[must_use]
    pub fn by_digest(&self, digest: &Digest) -> Self {
        Self {
            place: self.place.clone(),
            version: digest.to_string(),
        }
    }

    /// Returns whether the other is in the same repository or layout, whatever way it is reached.
    pub fn is_beside(&self, other: &Self) -> bool {
        match (&self.place, &other.place) {
            (ImageLocation::Layout(one), ImageLocation::Layout(other)) => one == other,
            (ImageLocation::Registry(one), ImageLocation::Registry(other)) => one.is_same(other),
            _ => false,
        }
    }

    /// The layout or repository.
    pub fn place(&self) -> &ImageLocation {
        &self.place
    }
}

impl FromStr for Reference {
    type Err = OciImageError;

    fn from_str(text: &str) -> Result<Self, OciImageError> {
        let refused = |what| OciImageError::Reference {
            text: text.to_owned(),
            what,
        };
        let (place, version) = split(text).map_err(refused)?;
        let place = match place.strip_prefix(LAYOUT).map(PathBuf::from) {
            Some(layout) if layout.is_absolute() => ImageLocation::Layout(layout),
            Some(_) => return Err(refused("its directory does not begin with /")),
            None => ImageLocation::Registry(place.parse().map_err(refused)?),
        };
        Ok(Self {
            place,
            version: version.to_owned(),
        })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            ImageLocation::Layout(path) => write!(f, "{LAYOUT}{}", path.display())?,
            ImageLocation::Registry(name) => write!(f, "{name}")?,
        }
        let separator = if is_tag(&self.version) { ':' } else { '@' };
        write!(f, "{separator}{}", self.version)
    }
}

/// Splits a text into the place, and the tag or digest.
fn split(text: &str) -> Result<(&str, &str), &'static str> {
    if let Some((place, digest)) = text.rsplit_once('@')
        && !digest.contains('/')
    {
        let is_digest = digest.parse::<Digest>().is_ok();
        let split = is_digest.then_some((place, digest));
        return split.ok_or("behind its @ is no sha256 digest");
    }
    let split = text.rsplit_once(':');
    let split = split.filter(|(_, tag)| !tag.contains('/'));
    let (place, tag) = split.ok_or("it has no tag")?;
    match is_tag(tag) {
        true => Ok((place, tag)),
        false => Err("its tag is not 1 to 128 of A-Z, a-z, 0-9 and ._-"),
    }
}

fn is_tag(text: &str) -> bool {
    let is_first = |one: char| one.is_ascii_alphanumeric() || one == '_';
    let is_other = |one: char| is_first(one) || one == '.' || one == '-';
    text.len() <= MOST_TAG && text.starts_with(is_first) && text.chars().all(is_other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_named_as_it_is_read() {
        for text in [
            "oci:/mnt/a:b/images:job-1.2",
            "registry.example/jobs/one:1",
            "registry.example:5000/one:1",
            "http://localhost:5000/one:1",
        ] {
            let reference: Reference = text.parse().unwrap();
            assert_eq!(reference.to_string(), text);
        }
        let digest = Digest::of(b"");
        for place in ["oci:/mnt/a@b/images", "registry.example:5000/one"] {
            let text = format!("{place}@{digest}");
            let reference: Reference = text.parse().unwrap();
            assert_eq!(reference.to_string(), text);
            assert_eq!(reference.tag(), digest.to_string());
            reference.new_tag().unwrap_err();
            let tagged: Reference = format!("{place}:job").parse().unwrap();
            assert_eq!(tagged.new_tag().unwrap(), "job");
            assert!(tagged.is_beside(&reference));
            assert_eq!(tagged.by_digest(&digest), reference);
        }
        let reference: Reference = "oci:/mnt/a:b/images:job-1.2".parse().unwrap();
        assert_eq!(reference.tag(), "job-1.2");
        assert_eq!(
            reference.place,
            ImageLocation::Layout("/mnt/a:b/images".into())
        );
    }

    #[test]
    fn nothing_else_is() {
        for other in [
            "",
            "oci:",
            "oci:/mnt",
            "oci:/mnt:",
            "oci:mnt:job",
            "oci:/mnt:.job",
            "oci:/mnt:a/b",
            "oci:/mnt:a b",
            "oci:/mnt@sha256:0a",
            "registry.example/job@latest",
            "registry.example/job:1@sha256:",
            "/mnt:job",
            "job:1",
            "registry.example/job",
            "registry.example:5000/job",
            "docker://registry.example/job:1",
            &format!("oci:/mnt:{}", "a".repeat(129)),
        ] {
            let error = other.parse::<Reference>().unwrap_err().to_string();
            assert!(error.contains("names no image"), "{error}");
        }
    }
}
