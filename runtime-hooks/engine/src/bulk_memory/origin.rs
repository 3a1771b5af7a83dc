//! The record of the container to which contents apart from an image belong.

use std::io;
use std::path::{self, Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use stasis_host::json_record;
use stasis_host::time::rfc3339;
use stasis_memory_store::ORIGIN_FILE;

/// Far larger than any origin.
const MAX_BYTES: u64 = 1 << 16;
const VERSION: u32 = 2;

/// The origin of contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// The version of this record.
    version: u32,
    /// The container.
    pub(crate) container: String,
    /// The path where its image was written. The caller may have moved the image since.
    pub(crate) image_path: PathBuf,
    /// When the checkpoint began, RFC 3339.
    pub(crate) created: String,
}

impl Origin {
    /// The origin of contents whose checkpoint began at `began`.
    pub(crate) fn new(container: &str, image_path: &Path, began: SystemTime) -> Self {
        Self {
            version: VERSION,
            container: container.to_owned(),
            image_path: path::absolute(image_path).unwrap_or_else(|_| image_path.to_owned()),
            created: rfc3339(began),
        }
    }

    /// Writes the origin. The sync that brings the contents to disk includes it.
    pub(crate) fn write(&self, directory: &Path) -> io::Result<()> {
        json_record::write(&directory.join(ORIGIN_FILE), self)
    }

    pub(crate) fn read(directory: &Path) -> Option<Self> {
        let origin: Self = json_record::read(&directory.join(ORIGIN_FILE), MAX_BYTES).ok()??;
        (origin.version == VERSION).then_some(origin)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;

    use super::*;

    pub(crate) fn origin(container: &str, created: &str) -> Origin {
        Origin {
            created: created.to_owned(),
            ..Origin::new(container, Path::new("/images/1"), SystemTime::now())
        }
    }

    #[test]
    fn an_origin_is_read_as_it_was_written_and_no_other() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(Origin::read(directory.path()), None);
        let written = origin("c1", "2026-11-26T10:00:00Z");
        written.write(directory.path()).unwrap();
        assert_eq!(Origin::read(directory.path()), Some(written.clone()));
        let later = Origin {
            version: VERSION + 1,
            ..written
        };
        later.write(directory.path()).unwrap();
        assert_eq!(Origin::read(directory.path()), None);
        fs::write(directory.path().join(ORIGIN_FILE), "{").unwrap();
        assert_eq!(Origin::read(directory.path()), None);
    }
}
