//! The image that a new container is to begin with, as its annotation names it.

use std::path::{Component, Path, PathBuf};

use stasis_oci_image::Reference;

use crate::pod::is_sandbox;
use stasis_engine::container::spec::Spec;
use stasis_engine::container::spec::annotation::RESTORE as ANNOTATION;

use crate::stopped::key::{MAX_BYTES, is_name};

/// The prefix of a key whose latest image is meant.
const LATEST: &str = "latest:";
/// The prefix of a directory of images that `stasis pull` knows and containers may not name.
const LAYOUT: &str = "oci:";

/// The image that the annotation names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FirstImage {
    /// An image directory: absolute, or below the directory of the settings.
    Directory(PathBuf),
    /// The latest of the images in this directory below that of the settings.
    Latest(PathBuf),
    /// An image in a registry.
    Registry(Reference),
}

/// Why an annotation names no image.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum FirstImageError {
    #[error(
        "the annotation {ANNOTATION}={given:?} is not HOST/NAME:TAG of an image in a registry, so \
         nothing was created"
    )]
    Registry { given: String },
    #[error(
        "the annotation {ANNOTATION}={given:?} is neither the name or absolute path of an image \
         directory, nor {LATEST}KEY, nor HOST/NAME:TAG, so nothing was created"
    )]
    Unknown { given: String },
}

impl FirstImage {
    /// Reads the annotation in a bundle. A specification that cannot be read is left to the
    /// low-level runtime. A pod's sandbox has the pod's annotations as well, and asks for nothing.
    pub fn of(bundle: &Path) -> Result<Option<Self>, FirstImageError> {
        let spec = Spec::read(bundle).ok().filter(|spec| !is_sandbox(spec));
        let given = spec.as_ref().and_then(|spec| spec.annotation(ANNOTATION));
        given.map(Self::parse).transpose()
    }

    /// A name is of letters, digits, ".", "_" and "-", with "/" between its parts: it has no host
    /// with a dot or port, no tag and no digest, as a registry's name has, so neither is taken for
    /// the other.
    fn parse(given: &str) -> Result<Self, FirstImageError> {
        let unknown = || FirstImageError::Unknown {
            given: given.to_owned(),
        };
        let registry = || FirstImageError::Registry {
            given: given.to_owned(),
        };
        if given.len() > MAX_BYTES || given.contains('\0') {
            return Err(unknown());
        }
        if let Some(key) = given.strip_prefix(LATEST) {
            let key = is_name(key).then(|| PathBuf::from(key));
            return key.map(Self::Latest).ok_or_else(unknown);
        }
        let path = Path::new(given);
        if path.is_absolute() {
            let climbs = path.components().any(|part| part == Component::ParentDir);
            let directory = (!climbs).then(|| Self::Directory(path.to_owned()));
            return directory.ok_or_else(unknown);
        }
        let host = given.split_once('/').map_or("", |(host, _)| host);
        if given.contains([':', '@']) || host.trim_start_matches('.').contains('.') {
            let reference = Some(given).filter(|given| !given.starts_with(LAYOUT));
            let reference = reference.and_then(|given| given.parse().ok());
            return reference.map(Self::Registry).ok_or_else(registry);
        }
        let directory = is_name(given).then(|| Self::Directory(path.to_owned()));
        directory.ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod;

    fn parse(given: &str) -> Result<FirstImage, FirstImageError> {
        FirstImage::parse(given)
    }

    #[test]
    fn a_pods_sandbox_asks_for_nothing() {
        let bundle = tempfile::tempdir().unwrap();
        let of = |annotations: &str| {
            let spec = format!(r#"{{"ociVersion": "1.0.2", "annotations": {{{annotations}}}}}"#);
            std::fs::write(bundle.path().join("config.json"), spec).unwrap();
            FirstImage::of(bundle.path()).unwrap()
        };
        let asked = r#""io.stasis.restore": "job""#;
        let job = Some(FirstImage::Directory("job".into()));
        assert_eq!(of(asked), job);
        for kind in pod::ALL.map(|names| names.kind) {
            assert_eq!(of(&format!(r#"{asked}, "{kind}": "container""#)), job);
            assert_eq!(of(&format!(r#"{asked}, "{kind}": "sandbox""#)), None);
        }
    }

    #[test]
    fn directories_and_keys_are_told_apart() {
        for name in ["job", "team/job-1", "job.1", "/images/job", "/images/a b"] {
            assert_eq!(parse(name), Ok(FirstImage::Directory(name.into())));
        }
        for key in ["job", "llama/70b_v1.2"] {
            let latest = parse(&format!("latest:{key}"));
            assert_eq!(latest, Ok(FirstImage::Latest(key.into())));
        }
    }

    #[test]
    fn a_registrys_name_is_not_taken_for_a_directory() {
        for given in ["example.com/job:1", "localhost:5000/red/job:1"] {
            let named = parse(given).unwrap();
            assert_eq!(named, FirstImage::Registry(given.parse().unwrap()));
        }
        for given in [
            "example.com/job",
            "localhost:5000/job",
            "job:1",
            "job@sha256:0123",
            "oci://example.com/job",
            "oci:/images:job",
            "example.com/../job:1",
        ] {
            let refused = parse(given).unwrap_err();
            assert!(
                matches!(refused, FirstImageError::Registry { .. }),
                "{given}: {refused}"
            );
        }
    }

    #[test]
    fn what_leads_elsewhere_or_is_no_name_is_refused() {
        let long = "a".repeat(MAX_BYTES + 1);
        for given in [
            "",
            "..",
            "../job",
            "a/../b",
            "a//b",
            ".hidden",
            "a/",
            "latest:",
            "latest:..",
            "latest:/images",
            "latest:a:b",
            "/images/../etc",
            "a b",
            "a\0b",
            &long,
        ] {
            let refused = parse(given);
            assert!(
                matches!(refused, Err(FirstImageError::Unknown { .. })),
                "{given:?}: {refused:?}"
            );
        }
    }
}
