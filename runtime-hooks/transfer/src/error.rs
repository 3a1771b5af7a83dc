//! Errors of pushes and pulls. They leave everything that existed before as it was.

use std::io;
use std::path::{Path, PathBuf};

use stasis_engine::error::Refusal;
use stasis_engine::error::io_kind::{of_image, of_store};
use stasis_engine::error::kind::Kind;
use stasis_engine::image::directory::PARENT;
use stasis_memory_store::StoreError;
use stasis_oci_image::OciImageError;

use crate::archive::CHECKPOINT;

/// Why an image was not pushed or pulled.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// The layout, or an image in it, cannot be used.
    #[error(transparent)]
    Elsewhere(#[from] OciImageError),
    /// There is no image to push.
    #[error("there is no image in {0}")]
    Nothing(PathBuf),
    /// A restore would not take the image either.
    #[error(transparent)]
    Refused(#[from] Box<Refusal>),
    /// Its bulk memory cannot be read.
    #[error(transparent)]
    Memory(#[from] StoreError),
    /// The image lists no files, so a pull could not check that it is whole.
    #[error(
        "the image in {0} does not list its files: stasis did not make it, or its checkpoint \
         was killed; push one that lists them"
    )]
    Unlisted(PathBuf),
    /// The image has a part of its memory in another image, which would not be pushed with it.
    #[error(
        "the image in {0} needs another image (its link {PARENT}); push one that was made without \
         --parent-path"
    )]
    Parent(PathBuf),
    /// A file is no archive with an image.
    #[error(
        "{0} is no archive of a checkpoint: it has no directory {CHECKPOINT}; name an image's \
         directory, or an archive that an engine exported"
    )]
    NoArchive(PathBuf),
    /// The image has no files of an engine, which could make no container of it.
    #[error(
        "{0} was pushed from a directory and has no engine's files, so that it cannot become an \
         archive; pull it into a directory, or push the engine's archive"
    )]
    NoEngine(String),
    /// The pulled image cannot be used.
    #[error("the image {reference} cannot be used: {what}")]
    NoImage {
        /// The reference that was asked for.
        reference: String,
        /// The defect.
        what: String,
    },
    /// The file system is too small for it.
    #[error(
        "the image {reference} has {} MiB of files, and {directory} is on a file system with {} MiB \
         free; nothing was fetched; make room there, or name another directory",
        .needed.div_ceil(1 << 20), .free >> 20
    )]
    NoRoom {
        /// The reference that was asked for.
        reference: String,
        /// The directory for it.
        directory: PathBuf,
        /// Bytes that are to come.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// The image's path exists and is not an empty directory.
    #[error("{0} exists and is not an empty directory; name a new one")]
    There(PathBuf),
    /// Another pull is at work there.
    #[error("another pull into {0} is running; wait for it, or name another directory")]
    Busy(PathBuf),
    /// No data has come for `deadlines.stalled_s`.
    #[error(
        "no more data of the image {0} came for deadlines.stalled_s; check the registry and the \
         network, and pull it again into the same directory"
    )]
    Stalled(String),
    /// An error of the process that pulls.
    #[error("{why}")]
    Background {
        /// Its kind.
        kind: Kind,
        /// Why.
        why: String,
    },
    /// The directory for the image cannot be written.
    #[error("cannot {action} {path}")]
    Io {
        /// A verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
}

impl MoveError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        // An error of the layout or registry names its source itself.
        move |source| match source.downcast() {
            Ok(elsewhere) => Self::Elsewhere(elsewhere),
            Err(source) => Self::Io {
                action,
                path,
                source,
            },
        }
    }

    pub(crate) fn refused(refusal: impl Into<Refusal>) -> Self {
        Self::Refused(Box::new(refusal.into()))
    }

    /// Returns the kind of the error, for scripts.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Elsewhere(error) => of_elsewhere(error),
            Self::Refused(refusal) => refusal.kind(),
            Self::Memory(error) => of_store(error),
            Self::Unlisted(_) | Self::Parent(_) | Self::NoEngine(_) => Kind::Unsupported,
            Self::NoImage { .. } => Kind::ImageDamaged,
            Self::There(_) | Self::NoArchive(_) | Self::Nothing(_) => Kind::ImageDirectory,
            Self::NoRoom { .. } => Kind::NoSpace,
            Self::Busy(_) => Kind::Busy,
            Self::Stalled(_) => Kind::Hung,
            Self::Background { kind, .. } => *kind,
            Self::Io { source, .. } => of_image(source),
        }
    }
}

fn of_elsewhere(error: &OciImageError) -> Kind {
    match error {
        OciImageError::Io { source, .. } => of_image(source),
        OciImageError::Reference { .. }
        | OciImageError::NoLayout { .. }
        | OciImageError::NoTag { .. } => Kind::ImageDirectory,
        OciImageError::Registry { .. }
        | OciImageError::Denied { .. }
        | OciImageError::Credentials { .. } => Kind::Registry,
        OciImageError::NotOurs { .. } | OciImageError::TooLarge(_) => Kind::Unsupported,
        OciImageError::Document { .. }
        | OciImageError::NoBlob { .. }
        | OciImageError::Blob { .. } => Kind::ImageDamaged,
    }
}
