//! Why an image cannot be put where registries' images are, or fetched from there.

use std::io;
use std::path::{Path, PathBuf};

use crate::Digest;

/// Why an image cannot be put where registries' images are, or fetched from there.
#[derive(Debug, thiserror::Error)]
pub enum OciImageError {
    /// It is no name of an image.
    #[error(
        "{text:?} names no image: {what}; a layout is named as oci:/DIRECTORY:TAG, and registries \
         are to come"
    )]
    Reference {
        /// What was given.
        text: String,
        /// What is wrong with it.
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
        #[source]
        source: io::Error,
    },
    /// The directory is no OCI layout.
    #[error("{path} is no OCI layout: {what}")]
    NoLayout {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// No manifest of the layout has this tag.
    #[error("{layout} has no image {tag}")]
    NoTag {
        /// The layout.
        layout: PathBuf,
        /// What was asked for.
        tag: String,
    },
    /// A document is not as it has to be.
    #[error("{document} cannot be used: {what}")]
    Document {
        /// Which one.
        document: String,
        /// What is wrong with it.
        what: String,
    },
    /// A manifest is that of something else.
    #[error(
        "{document} is that of a {}, and not of an image of this stasis; name one that `stasis push` \
         has made",
        what_else(.artifact)
    )]
    NotOurs {
        /// Which one.
        document: String,
        /// What it says that it is; empty: nothing.
        artifact: String,
    },
    /// A blob that a document names is not there.
    #[error("{layout} lacks the blob {digest}; push the image there again")]
    NoBlob {
        /// The layout.
        layout: PathBuf,
        /// The blob.
        digest: Digest,
    },
    /// A blob is not what its digest and length say.
    #[error(
        "the blob {digest} is damaged: {what}; remove its file, and push an image that has it again"
    )]
    Blob {
        /// The blob.
        digest: Digest,
        /// What is wrong with it.
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
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }

    pub(crate) fn document(document: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Document {
            document: document.into(),
            what: what.into(),
        }
    }

    pub(crate) fn blob(digest: Digest, what: impl Into<String>) -> Self {
        let what = what.into();
        Self::Blob { digest, what }
    }
}
