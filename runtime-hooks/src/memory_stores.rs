//! The directories that bulk memory is kept in, apart from images: one for each checkpoint, named by its image id.

use std::fs::{self, DirBuilder};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use stasis_config::Settings;
use stasis_memory_store::{ImageId, StoreError, Stored, Tier};

use crate::engine::Engine;
use crate::entry;

/// Where a directory's contents are from; there once they are complete.
const ORIGIN: &str = "origin.json";
/// Far above what is ever written.
const MAX_ORIGIN_BYTES: u64 = 1 << 16;
/// The directory of what is being copied to disk has this after its image id.
pub(crate) const PARTIAL: &str = "partial";

/// Where there are such directories.
#[derive(Debug, Clone)]
pub struct Stores {
    /// On disk.
    pub disk: PathBuf,
    /// In memory, if there are any.
    pub ram: PathBuf,
}

/// Where the contents of a directory are from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The container.
    pub container: String,
    /// The root of its low-level runtime.
    pub root: PathBuf,
    /// Where its image was put. Callers may have moved it since.
    pub image_path: PathBuf,
    /// When the checkpoint began, RFC 3339.
    pub created: String,
    /// When it was complete, nanoseconds since 1970: which one is the newest.
    pub order: u64,
}

/// A complete directory, and where its contents are from, if that is known.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) stored: Stored,
    pub(crate) origin: Option<Origin>,
}

impl Stores {
    /// Those of these settings.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        Self {
            disk: settings.bulk_memory.directory.clone(),
            ram: settings.paths.state_dir.join("memory"),
        }
    }

    /// The directory for a checkpoint in a tier, if it has one.
    pub(crate) fn directory_of(&self, tier: Tier, id: ImageId) -> Option<PathBuf> {
        match tier {
            Tier::Portable => None,
            Tier::Disk => Some(self.disk.join(id.to_string())),
            Tier::Ram => Some(self.ram.join(id.to_string())),
        }
    }
}

impl Origin {
    pub(crate) fn new(engine: &Engine, container: &str, image_path: &Path) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            container: container.to_owned(),
            root: engine.root.clone(),
            image_path: image_path.to_owned(),
            created: engine.began_text(),
            order: now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)),
        }
    }

    /// Says that a directory is complete, and where it is from.
    ///
    /// # Errors
    /// What the kernel said.
    pub(crate) fn write(&self, directory: &Path) -> io::Result<()> {
        let staged = directory.join("origin.new");
        fs::write(&staged, serde_json::to_vec(self)?)?;
        fs::rename(&staged, directory.join(ORIGIN))
    }

    pub(crate) fn read(directory: &Path) -> Option<Self> {
        let file = entry::open(&directory.join(ORIGIN)).ok()??;
        let mut text = Vec::new();
        file.take(MAX_ORIGIN_BYTES).read_to_end(&mut text).ok()?;
        serde_json::from_slice(&text).ok()
    }
}

/// Makes a directory for such directories, which only root may look into.
///
/// # Errors
/// What the kernel said.
pub(crate) fn prepare(directory: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
}

/// All directories below `parent`, the oldest first.
///
/// # Errors
/// [`StoreError`].
pub(crate) fn all_in(parent: &Path) -> Result<Vec<Store>, StoreError> {
    let stored = stasis_memory_store::list(parent)?.into_iter();
    let mut stores: Vec<Store> = stored
        .map(|stored| Store {
            origin: Origin::read(&stored.directory),
            stored,
        })
        .collect();
    stores.sort_by_key(|store| {
        store
            .origin
            .as_ref()
            .map_or(u64::MAX, |origin| origin.order)
    });
    Ok(stores)
}

/// The directories below `parent` that a copy to disk was, or is, made in, and when something was last done to them.
///
/// # Errors
/// What the kernel said.
pub(crate) fn partial_in(parent: &Path) -> io::Result<Vec<(PathBuf, SystemTime)>> {
    let mut found = Vec::new();
    for (name, path) in names_in(parent)? {
        let id = name.split_once('.').filter(|(_, rest)| *rest == PARTIAL);
        if !id.is_some_and(|(id, _)| id.parse::<ImageId>().is_ok()) {
            continue;
        }
        let mut modified = path.metadata()?.modified()?;
        for entry in fs::read_dir(&path)? {
            modified = modified.max(entry?.metadata()?.modified()?);
        }
        found.push((path, modified));
    }
    Ok(found)
}

/// The newest complete one of a container.
pub(crate) fn newest_of(parent: &Path, container: &str, root: &Path) -> Option<PathBuf> {
    let is_its = |origin: &Origin| origin.container == container && origin.root.as_path() == root;
    let names = names_in(parent).ok()?.into_iter();
    let theirs = names
        .filter(|(name, _)| name.parse::<ImageId>().is_ok())
        .filter_map(|(_, path)| Some((Origin::read(&path).filter(is_its)?, path)));
    let newest = theirs.max_by_key(|(origin, _)| origin.order);
    newest.map(|(_, path)| path)
}

/// What is in a directory; nothing if it is not there.
///
/// # Errors
/// What the kernel said.
pub(crate) fn names_in(parent: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let entries = match fs::read_dir(parent) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        names.push((
            entry.file_name().to_string_lossy().into_owned(),
            entry.path(),
        ));
    }
    Ok(names)
}

/// Removes a directory and what no other has of its contents; it is no error that it is not there.
///
/// # Errors
/// [`StoreError`].
pub(crate) fn remove(directory: &Path) -> Result<(), StoreError> {
    // What is cut off here is not taken for complete.
    entry::remove(&directory.join(ORIGIN)).map_err(|source| StoreError::Io {
        action: "remove",
        path: directory.join(ORIGIN),
        source,
    })?;
    stasis_memory_store::remove(directory)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use stasis_memory_store::STORE_INDEX_FILE;

    pub(crate) fn origin(container: &str, order: u64) -> Origin {
        Origin {
            container: container.to_owned(),
            root: "/run/runc".into(),
            image_path: "/images/1".into(),
            created: "2026-11-21T06:00:00Z".into(),
            order,
        }
    }

    fn pack_name(creator: u128) -> String {
        format!("stasis-memory-{}-0.pack", ImageId::new(creator))
    }

    /// A complete directory with one pack.
    pub(crate) fn store(parent: &Path, id: u128, origin: &Origin) -> PathBuf {
        let directory = parent.join(ImageId::new(id).to_string());
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join(pack_name(id)), [1; 100]).unwrap();
        fs::write(directory.join(STORE_INDEX_FILE), "").unwrap();
        origin.write(&directory).unwrap();
        directory
    }

    #[test]
    fn the_newest_complete_one_of_the_container_is_found() {
        let parent = tempfile::tempdir().unwrap();
        let newest = |container| newest_of(parent.path(), container, Path::new("/run/runc"));
        assert_eq!(newest("c1"), None);
        store(parent.path(), 1, &origin("c1", 10));
        let second = store(parent.path(), 2, &origin("c1", 20));
        store(parent.path(), 3, &origin("c2", 30));
        fs::create_dir(parent.path().join(ImageId::new(4).to_string())).unwrap();
        let partial = format!("{}.{PARTIAL}", ImageId::new(5));
        fs::create_dir(parent.path().join(&partial)).unwrap();
        origin("c1", 50)
            .write(&parent.path().join(partial))
            .unwrap();
        assert_eq!(newest("c1"), Some(second));
        assert_eq!(newest_of(parent.path(), "c1", Path::new("/run/crun")), None);
        assert_eq!(partial_in(parent.path()).unwrap().len(), 1);
        let all = all_in(parent.path()).unwrap();
        let ids: Vec<_> = all.iter().map(|store| store.stored.image_id).collect();
        assert_eq!(ids, [1, 2, 3, 4].map(ImageId::new));
        assert!(all[3].origin.is_none());
    }

    #[test]
    fn what_is_linked_elsewhere_stays() {
        let parent = tempfile::tempdir().unwrap();
        let first = store(parent.path(), 1, &origin("c1", 1));
        let second = store(parent.path(), 2, &origin("c1", 2));
        fs::hard_link(first.join(pack_name(1)), second.join(pack_name(1))).unwrap();
        remove(&first).unwrap();
        remove(&first).unwrap();
        assert!(!first.exists());
        assert_eq!(fs::read(second.join(pack_name(1))).unwrap(), [1; 100]);
    }
}
