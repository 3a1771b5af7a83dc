//! What is recorded of a store: which checkpoint of which container it belongs to.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use stasis_linux::file::{self, Access, Durability};
use stasis_memory_store::ORIGIN_FILE;

use crate::host::time::rfc3339;

/// Far larger than any origin.
const MAX_BYTES: u64 = 1 << 16;

/// The origin of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// The container.
    pub(crate) container: String,
    /// The root of its low-level runtime.
    pub(crate) root: PathBuf,
    /// The path of its image. The caller may have moved the image since.
    pub(crate) image_path: PathBuf,
    /// When the checkpoint began, RFC 3339.
    pub(crate) created: String,
    /// When it was complete, in nanoseconds since 1970: the newest store has the largest.
    #[serde(rename = "order")]
    pub(crate) completed_ns: u64,
    /// During which boot of the machine.
    #[serde(default)]
    pub(crate) boot_id: Option<String>,
}

impl Origin {
    /// Of a checkpoint that began then and is complete now.
    pub(crate) fn new(container: &str, root: &Path, image_path: &Path, began: SystemTime) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            container: container.to_owned(),
            root: root.to_owned(),
            image_path: image_path.to_owned(),
            created: rfc3339(began),
            completed_ns: now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)),
            boot_id: boot_id(),
        }
    }

    /// Writes the origin, which marks the store as complete.
    ///
    /// # Errors
    /// The I/O error.
    pub(crate) fn write(&self, directory: &Path, durability: Durability) -> io::Result<()> {
        let (path, text) = (directory.join(ORIGIN_FILE), serde_json::to_vec(self)?);
        file::replace(&path, &text, Access::Private, durability)
    }

    pub(crate) fn read(directory: &Path) -> Option<Self> {
        let text = file::read(&directory.join(ORIGIN_FILE), MAX_BYTES).ok()??;
        serde_json::from_slice(&text).ok()
    }

    /// Whether it is of this container.
    pub(crate) fn is_of(&self, container: &str, root: &Path) -> bool {
        self.container == container && self.root == root
    }

    /// Whether the machine has not been restarted since; memory of another boot is gone.
    pub(crate) fn is_of_this_boot(&self) -> bool {
        self.boot_id.is_some() && self.boot_id == boot_id()
    }
}

/// The id of this boot of the machine (random(4)).
pub(crate) fn boot_id() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn origin(container: &str, completed_ns: u64) -> Origin {
        Origin {
            container: container.to_owned(),
            root: "/run/runc".into(),
            image_path: "/images/1".into(),
            created: "2026-11-21T06:00:00Z".into(),
            completed_ns,
            boot_id: boot_id(),
        }
    }

    #[test]
    fn an_origin_of_an_earlier_version_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let text = r#"{"container":"c1","root":"/run/runc","image_path":"/images/1",
            "created":"2026-11-21T06:00:00Z","order":7}"#;
        fs::write(directory.path().join(ORIGIN_FILE), text).unwrap();
        let read = Origin::read(directory.path()).unwrap();
        assert_eq!(read.completed_ns, 7);
        assert!(!read.is_of_this_boot() && origin("c1", 7).is_of_this_boot());
    }
}
