//! The kinds of errors of images.

use std::io::ErrorKind;

use crate::error::io_kind::{of_image, of_io, of_store};
use crate::error::kind::Kind;
use crate::image::allowed::NotAllowed;
use crate::image::contents::ContentsError;
use crate::image::directory::ImageDirectoryError;
use crate::image::files::FileError;
use crate::image::manifest::ManifestError;
use crate::image::pstree::PstreeError;
use crate::image::work_directory::WorkDirectoryError;

impl NotAllowed {
    /// Why an image may not be restored.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Elsewhere { .. }
            | Self::NotRoots { .. }
            | Self::OtherFile { .. }
            | Self::TooMuch { .. } => Kind::ImageNotAllowed,
            Self::NoImage { .. } => Kind::ImageDirectory,
            Self::Io { source, .. } => of_io(source, Kind::ImageDirectory),
        }
    }
}

impl ImageDirectoryError {
    /// Why an image directory cannot be used.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Busy(_) | Self::Read(_) | Self::Removed(_) => Kind::Busy,
            Self::Incomplete(_) => Kind::Criu,
            Self::Io { source, .. } | Self::NotOnDisk { source, .. } => {
                of_io(source, Kind::ImageDirectory)
            }
            Self::Manifest(error) => error.kind(),
            Self::File(error) => error.kind(),
            Self::Store(error) => of_store(error),
        }
    }
}

impl FileError {
    /// Why an image is not whole.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Io { source, .. } => of_image(source),
            Self::Exchanged { .. } => Kind::Busy,
            Self::Missing { .. }
            | Self::Length { .. }
            | Self::Contents { .. }
            | Self::Owner { .. } => Kind::ImageDamaged,
        }
    }
}

impl ContentsError {
    /// Why what is in an image cannot be shown.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Io { source, .. } if source.kind() == ErrorKind::UnexpectedEof => {
                Kind::ImageDamaged
            }
            Self::Io { source, .. } => of_image(source),
            Self::Malformed { .. } | Self::TooMuch { .. } => Kind::ImageDamaged,
        }
    }
}

impl WorkDirectoryError {
    /// Why CRIU's work directory is not used.
    pub fn kind(&self) -> Kind {
        match self {
            Self::NoFile(_) => Kind::ImageDirectory,
            Self::Io { source, .. } => of_io(source, Kind::ImageDirectory),
        }
    }
}

impl PstreeError {
    /// Why the image is not reported good.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Io { .. } | Self::Malformed { .. } | Self::WithoutTmpfs { .. } => {
                Kind::ImageDamaged
            }
            Self::WithoutProcess { .. } | Self::Adopted { .. } => Kind::ProcessEnded,
        }
    }
}

impl ManifestError {
    /// Why the manifest cannot be written or is not valid.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Io { source, .. } => of_image(source),
            Self::Malformed { .. } => Kind::ImageDamaged,
            Self::Unreadable { .. } => Kind::Unsupported,
            Self::Version { .. } => Kind::ImageVersion,
        }
    }
}
