//! Errors of putting an image where registries' images are, or of fetching it from there.

use std::io;
use std::path::{Path, PathBuf};

use crate::Digest;

/// The reason why an image cannot be put where registries' images are, or fetched from there.
#[derive(Debug, thiserror::Error)]
pub enum OciImageError {
    /// The text is no name of an image.
    #[error(
        "{text:?} names no image: {what}; images are named as oci:/DIRECTORY:TAG in a layout, and as \
         REGISTRY/REPOSITORY:TAG in a registry"
    )]
    Reference {
        /// The text.
        text: String,
        /// The reason.
        what: &'static str,
    },
    /// A file or directory cannot be used.
    #[error("cannot {action} {path}")]
    Io {
        /// A verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The directory is no OCI layout.
    #[error("{path} is no OCI layout: {what}")]
    NoLayout {
        /// The directory.
        path: PathBuf,
        /// The reason.
        what: String,
    },
    /// The user's credentials cannot be used.
    #[error("the credentials in {path} cannot be used: {what}; log in again, or name another file")]
    Credentials {
        /// The file.
        path: PathBuf,
        /// The reason.
        what: String,
    },
    /// A registry cannot be reached, or cannot do what was asked.
    #[error("{registry}: cannot {action}: {what}")]
    Registry {
        /// With the repository.
        registry: String,
        /// The request.
        action: String,
        /// The answer, or the error.
        what: String,
    },
    /// A registry does not let us.
    #[error(
        "{registry}: may not {action}: {what}; log in with `podman login` or `docker login` as root, \
         or name a file with --authfile; without TLS a password is only sent to this machine"
    )]
    Denied {
        /// With the repository.
        registry: String,
        /// The request.
        action: String,
        /// The registry's answer.
        what: String,
    },
    /// No manifest has this tag.
    #[error("{place} has no image {tag}")]
    NoTag {
        /// The layout or repository.
        place: String,
        /// The tag or digest.
        tag: String,
    },
    /// A document is not as it has to be.
    #[error("{document} cannot be used: {what}")]
    Document {
        /// The document.
        document: String,
        /// The reason.
        what: String,
    },
    /// A manifest belongs to something else.
    #[error(
        "{document} is that of a {}, and not of an image of this stasis; name one that `stasis push` \
         has made",
        what_else(.artifact)
    )]
    NotOurs {
        /// The document.
        document: String,
        /// The type that it names; empty without one.
        artifact: String,
    },
    /// A blob that a document names is not there.
    #[error("{place} lacks the blob {digest}; push the image there again")]
    NoBlob {
        /// The layout or repository.
        place: String,
        /// The blob.
        digest: Digest,
    },
    /// No registry takes a blob of that size.
    #[error(
        "{0} has more than the 9 GiB that a blob may have, compressed as well, and nothing was sent; \
         keep the image in a file system, or make one without it"
    )]
    TooLarge(
        /// The contents that the blob would have.
        &'static str,
    ),
    /// A blob does not match its digest and length.
    #[error(
        "the blob {digest} is damaged: {what}; remove it there, and push an image that has it again"
    )]
    Blob {
        /// The blob.
        digest: Digest,
        /// The difference.
        what: String,
    },
}

fn what_else(artifact: &str) -> String {
    match artifact {
        "" => "container image".to_owned(),
        other => format!("{other:?}"),
    }
}

impl OciImageError {
    /// Turns the kernel's error about `path` into ours; `action` is a verb.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::of_io(source, action, &path)
    }

    /// Takes out an error of our own that came as one of I/O, from where a blob is read or written.
    pub fn of_io(error: io::Error, action: &'static str, path: &Path) -> Self {
        let path = path.to_owned();
        error.downcast().unwrap_or_else(|source| Self::Io {
            action,
            path,
            source,
        })
    }

    /// `document` cannot be used.
    pub fn document(document: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Document {
            document: document.into(),
            what: what.into(),
        }
    }

    /// The blob is damaged.
    pub fn blob(digest: Digest, what: impl Into<String>) -> Self {
        let what = what.into();
        Self::Blob { digest, what }
    }
}
