//! What is recorded of a store: which checkpoint of which container it belongs to.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{self, Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use stasis_linux::file::{self, Access, Durability};
use stasis_memory_store::ORIGIN_FILE;

use crate::host::boot::boot_id;
use crate::host::time::rfc3339;

/// Far larger than any origin.
const MAX_BYTES: u64 = 1 << 16;
const VERSION: u32 = 1;
/// An image that is where it was written so long afterwards was not written to be exported.
const SETTLED: Duration = Duration::from_secs(3600);

/// The origin of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// The version of this record.
    #[serde(default)]
    pub(crate) version: u32,
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
    /// Whether the image may have gone elsewhere: its caller exports images from where it was
    /// written, or it was restored from another place.
    #[serde(default = "is_true")]
    pub(crate) exported: bool,
    /// Whether the image was where it was written long after it was.
    #[serde(default)]
    pub(crate) settled: bool,
}

/// Nobody knows of an image where it went that an earlier version has made.
fn is_true() -> bool {
    true
}

impl Origin {
    /// Of a checkpoint that began then and is complete now.
    pub(crate) fn new(container: &str, root: &Path, image_path: &Path, began: SystemTime) -> Self {
        Self {
            version: VERSION,
            container: container.to_owned(),
            root: root.to_owned(),
            image_path: path::absolute(image_path).unwrap_or_else(|_| image_path.to_owned()),
            created: rfc3339(began),
            completed_ns: now_ns(),
            boot_id: boot_id(),
            exported: is_for_export(image_path),
            settled: false,
        }
    }

    /// Records that there is an image of it in another place than where it was written.
    ///
    /// # Errors
    /// The I/O error.
    pub(crate) fn was_restored_from(directory: &Path, image: &Path) -> io::Result<()> {
        let Some(mut origin) = Self::read(directory).filter(|origin| !origin.exported) else {
            return Ok(());
        };
        if is_same(&origin.image_path, image) {
            return Ok(());
        }
        origin.exported = true;
        origin.write(directory, Durability::Volatile)
    }

    /// Whether a directory that was to be removed after the checkpoint would have been by now.
    pub(crate) fn is_old(&self) -> bool {
        let settled = u64::try_from(SETTLED.as_nanos()).unwrap_or(u64::MAX);
        now_ns().saturating_sub(self.completed_ns) > settled
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
        let origin: Self = serde_json::from_slice(&text).ok()?;
        // Of a later version nobody knows here what it means.
        (origin.version <= VERSION).then_some(origin)
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

/// Whether container engines write images to such a path to export them, and remove it afterwards:
/// containerd to a directory `ctrd-checkpoint*` (services/tasks/local.go; its CRI plugin below the
/// container's directory), podman and CRI-O to `userdata/checkpoint` of the container.
fn is_for_export(image_path: &Path) -> bool {
    let names: Vec<_> = image_path.iter().collect();
    let is_containerds = |name: &&OsStr| name.as_encoded_bytes().starts_with(b"ctrd-checkpoint");
    let is_podmans = |names: &[&OsStr]| names[0] == "userdata" && names[1] == "checkpoint";
    names.iter().any(is_containerds) || names.windows(2).any(is_podmans)
}

fn is_same(one: &Path, other: &Path) -> bool {
    let found = [one, other].map(fs::canonicalize);
    matches!(found, [Ok(one), Ok(other)] if one == other)
}

fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn origin(container: &str, completed_ns: u64) -> Origin {
        let (root, image) = (Path::new("/run/runc"), Path::new("/images/1"));
        Origin {
            completed_ns,
            ..Origin::new(container, root, image, SystemTime::now())
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
        assert!(read.exported, "nobody knows");
        let later = text.replace('{', r#"{"version":2,"#);
        fs::write(directory.path().join(ORIGIN_FILE), later).unwrap();
        assert_eq!(Origin::read(directory.path()), None);
    }

    #[test]
    fn where_engines_export_from_is_known() {
        let for_export = [
            "/tmp/ctrd-checkpoint3748",
            "/var/lib/containerd/io.containerd.grpc.v1.cri/containers/c1/ctrd-checkpoint",
            "/var/lib/containers/storage/overlay-containers/c1/userdata/checkpoint",
        ];
        assert!(for_export.iter().all(|path| is_for_export(Path::new(path))));
        assert!(!is_for_export(Path::new("/images/checkpoint/userdata")));
    }

    #[test]
    fn an_image_that_was_restored_elsewhere_may_be_anywhere() {
        let directory = tempfile::tempdir().unwrap();
        let [image, other] = ["image", "other"].map(|name| directory.path().join(name));
        for made in [&image, &other] {
            fs::create_dir(made).unwrap();
        }
        let origin = Origin::new("c1", Path::new("/run"), &image, SystemTime::now());
        origin
            .write(directory.path(), Durability::Volatile)
            .unwrap();
        for (from, exported) in [(&image, false), (&other, true), (&image, true)] {
            Origin::was_restored_from(directory.path(), from).unwrap();
            let origin = Origin::read(directory.path()).unwrap();
            assert_eq!(origin.exported, exported, "{}", from.display());
        }
    }
}
