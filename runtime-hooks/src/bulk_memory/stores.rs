//! The directories that hold bulk memory outside of images: one for each checkpoint, named by its
//! image id.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use stasis_config::Settings;
use stasis_linux::directory::Directory;
use stasis_memory_store::{ImageId, StoreError, Stored, Tier};

use crate::bulk_memory::origin::Origin;

/// The suffix of a directory while it is being copied to disk.
pub(crate) const PARTIAL: &str = "partial";

/// The directories that hold the stores of each tier.
#[derive(Debug, Clone)]
pub struct Stores {
    /// On disk.
    pub disk: PathBuf,
    /// In memory; it may not exist.
    pub ram: PathBuf,
}

/// A complete store, and its origin if known.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) stored: Stored,
    pub(crate) origin: Option<Origin>,
}

impl Stores {
    /// The directories that the settings name.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        Self {
            disk: settings.bulk_memory.directory.clone(),
            ram: settings.paths.state_dir.join("memory"),
        }
    }

    /// Whether all of a checkpoint is on disk.
    pub(crate) fn is_on_disk(&self, id: ImageId) -> bool {
        self.disk.join(id.to_string()).is_dir()
    }

    /// The directory of a checkpoint whose copy to disk is not complete.
    pub(crate) fn partial_of(&self, id: ImageId) -> PathBuf {
        self.disk.join(format!("{id}.{PARTIAL}"))
    }

    /// The directory of a checkpoint in a tier; `None` for the portable tier.
    pub(crate) fn directory_of(&self, tier: Tier, id: ImageId) -> Option<PathBuf> {
        match tier {
            Tier::Portable => None,
            Tier::Disk => Some(self.disk.join(id.to_string())),
            Tier::Ram => Some(self.ram.join(id.to_string())),
        }
    }
}

/// Creates a directory for stores, which only root may read, or looks at the one that is there.
///
/// # Errors
/// The I/O error.
pub(crate) fn prepare(directory: &Path) -> io::Result<()> {
    Directory::make(directory, 0o700).map(drop)
}

/// All stores in `parent`, the oldest first.
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
            .map_or(u64::MAX, |origin| origin.completed_ns)
    });
    Ok(stores)
}

/// The directories in `parent` of unfinished copies to disk, with their modification times.
///
/// # Errors
/// The I/O error.
pub(crate) fn partial_in(parent: &Path) -> io::Result<Vec<(PathBuf, SystemTime)>> {
    let mut found = Vec::new();
    for (name, path) in names_in(parent)? {
        let id = name.split_once('.').filter(|(_, rest)| *rest == PARTIAL);
        if id.is_none_or(|(id, _)| id.parse::<ImageId>().is_err()) {
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

/// The newest complete store of a container.
pub(crate) fn newest_of(parent: &Path, container: &str, root: &Path) -> Option<PathBuf> {
    let is_its = |origin: &Origin| origin.is_of(container, root);
    let names = names_in(parent).ok()?.into_iter();
    let theirs = names
        .filter(|(name, _)| name.parse::<ImageId>().is_ok())
        .filter_map(|(_, path)| Some((Origin::read(&path).filter(is_its)?, path)));
    let newest = theirs.max_by_key(|(origin, _)| origin.completed_ns);
    newest.map(|(_, path)| path)
}

/// The entries of a directory; empty if it does not exist.
///
/// # Errors
/// The I/O error.
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use stasis_linux::file::Durability;
    use stasis_memory_store::{STORE_INDEX_FILE, remove};

    use crate::bulk_memory::origin::tests::origin;

    fn pack_name(creator: u128) -> String {
        format!("stasis-memory-{}-0.pack", ImageId::new(creator))
    }

    /// A complete store with one pack.
    pub(crate) fn store(parent: &Path, id: u128, origin: &Origin) -> PathBuf {
        let directory = parent.join(ImageId::new(id).to_string());
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join(pack_name(id)), [1; 100]).unwrap();
        fs::write(directory.join(STORE_INDEX_FILE), "").unwrap();
        origin.write(&directory, Durability::Volatile).unwrap();
        directory
    }

    /// Directories for stores on disk and in memory, and the settings that name them.
    pub(crate) struct Node {
        pub(crate) directory: tempfile::TempDir,
        pub(crate) settings: Settings,
        pub(crate) stores: Stores,
    }

    pub(crate) fn node() -> Node {
        node_in(&std::env::temp_dir())
    }

    pub(crate) fn node_in(parent: &Path) -> Node {
        let directory = tempfile::tempdir_in(parent).unwrap();
        let mut settings = Settings::default();
        settings.bulk_memory.directory = directory.path().join("disk");
        settings.bulk_memory.threads = 3;
        settings.paths.state_dir = directory.path().join("run");
        settings.paths.log_dir = directory.path().join("log");
        let stores = Stores::of(&settings);
        for parent in [&stores.disk, &stores.ram] {
            fs::create_dir_all(parent).unwrap();
        }
        Node {
            directory,
            settings,
            stores,
        }
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
            .write(&parent.path().join(partial), Durability::Volatile)
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
