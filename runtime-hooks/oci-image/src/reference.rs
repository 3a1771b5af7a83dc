//! What a user calls an image that is elsewhere.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::OciImageError;

const LAYOUT: &str = "oci:";
/// A tag has no more (OCI distribution, "Pulling manifests").
const MOST_TAG: usize = 128;

/// An image in an OCI layout, `oci:/DIRECTORY:TAG`, as skopeo and podman name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    layout: PathBuf,
    tag: String,
}

impl Reference {
    /// The directory of the layout.
    #[must_use]
    pub fn layout(&self) -> &Path {
        &self.layout
    }

    /// The name of the image in it.
    #[must_use]
    pub fn tag(&self) -> &str {
        &self.tag
    }
}

impl FromStr for Reference {
    type Err = OciImageError;

    fn from_str(text: &str) -> Result<Self, OciImageError> {
        let refused = |what| OciImageError::Reference {
            text: text.to_owned(),
            what,
        };
        let rest = text.strip_prefix(LAYOUT);
        let rest = rest.ok_or_else(|| refused("it does not begin with oci:"))?;
        let split = rest.rsplit_once(':');
        let (layout, tag) = split.ok_or_else(|| refused("it has no tag"))?;
        if !is_tag(tag) {
            return Err(refused("its tag is not 1 to 128 of A-Z, a-z, 0-9 and ._-"));
        }
        let layout = PathBuf::from(layout);
        if !layout.is_absolute() {
            return Err(refused("its directory does not begin with /"));
        }
        Ok(Self {
            layout,
            tag: tag.to_owned(),
        })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{LAYOUT}{}:{}", self.layout.display(), self.tag)
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
    fn a_layout_and_a_tag_are_named() {
        let reference: Reference = "oci:/mnt/a:b/images:job-1.2".parse().unwrap();
        assert_eq!(reference.layout(), Path::new("/mnt/a:b/images"));
        assert_eq!(reference.tag(), "job-1.2");
        assert_eq!(reference.to_string(), "oci:/mnt/a:b/images:job-1.2");
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
            "/mnt:job",
            "registry.example/job:1",
            &format!("oci:/mnt:{}", "a".repeat(129)),
        ] {
            let error = other.parse::<Reference>().unwrap_err().to_string();
            assert!(error.contains("names no image"), "{error}");
        }
    }
}
