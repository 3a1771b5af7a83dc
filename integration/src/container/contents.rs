//! Places of GPU contents in the settings of a test.

/// A directory that is not on a tmpfs.
pub const DISK: &str = "/var/lib/contents";
/// A directory on a tmpfs: `/run` of a host.
pub const MEMORY: &str = "/run/contents";
/// The settings that name these directories.
pub const ON_DISK: &str = "gpu_contents.directory = \"/var/lib/contents\"\n";
/// See [`ON_DISK`].
pub const IN_MEMORY: &str = "gpu_contents.directory = \"/run/contents\"\n";

/// The place of contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// In the image.
    InImage,
    /// Apart from it, on a disk.
    OnDisk,
    /// Apart from it, on a tmpfs.
    InMemory,
}

impl Contents {
    /// All places.
    pub const ALL: [Self; 3] = [Self::InImage, Self::OnDisk, Self::InMemory];

    /// The setting.
    #[must_use]
    pub fn setting(self) -> &'static str {
        match self {
            Self::InImage => "",
            Self::OnDisk => ON_DISK,
            Self::InMemory => IN_MEMORY,
        }
    }

    /// The directory, if they lie apart.
    #[must_use]
    pub fn directory(self) -> Option<&'static str> {
        match self {
            Self::InImage => None,
            Self::OnDisk => Some(DISK),
            Self::InMemory => Some(MEMORY),
        }
    }
}
