//! `stasis memory`: what is kept of bulk memory apart from images, and its removal.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use stasis_config::Settings;
use stasis_memory_store::{ImageId, Index, StoreError};

use crate::memory_stores::{self, Store, Stores};

/// What nobody has written to for so long is not being written.
const CUT_OFF: Duration = Duration::from_secs(3600);

/// The bulk memory of one checkpoint.
#[derive(Debug, Serialize)]
pub struct Kept {
    /// Its name.
    pub image_id: ImageId,
    /// The container, if that is known.
    pub container: Option<String>,
    /// When the checkpoint began.
    pub created: Option<String>,
    /// What it occupies on disk, or in memory if it is there alone.
    pub bytes: u64,
    /// The part of it that no other checkpoint uses.
    pub own_bytes: u64,
    /// Whether it is in memory.
    pub in_ram: bool,
    /// Whether it is on disk.
    pub durable: bool,
    /// Whether an operation was cut off, or is under way.
    pub complete: bool,
    /// Where the image was put.
    pub image_path: Option<PathBuf>,
    /// What is there now.
    pub image: Image,
    #[serde(skip)]
    directories: Vec<PathBuf>,
    #[serde(skip)]
    idle: Duration,
}

/// What is where an image was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Image {
    /// It.
    There,
    /// Another one.
    Replaced,
    /// None.
    Gone,
    /// Something that cannot be read, or the place is not known.
    Unknown,
}

/// Why it cannot be listed or removed.
#[derive(Debug, thiserror::Error)]
pub enum MemoryCommandError {
    /// A directory cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The same.
    #[error("cannot use {path}")]
    Io {
        /// The directory.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// Nothing has this name.
    #[error("no bulk memory here is named {0}; `stasis memory list` shows what there is")]
    None(String),
    /// Several have it.
    #[error("{0} is the beginning of several names; give more of it")]
    Several(String),
}

/// All that is kept here, the oldest first.
///
/// # Errors
/// [`MemoryCommandError`].
pub fn list(settings: &Settings) -> Result<Vec<Kept>, MemoryCommandError> {
    let stores = Stores::of(settings);
    let mut kept: Vec<Kept> = Vec::new();
    // On disk first: what is there, too, is described as it is there.
    for (parent, durable) in [(&stores.disk, true), (&stores.ram, false)] {
        for store in memory_stores::all_in(parent)? {
            let known = kept
                .iter_mut()
                .find(|kept| kept.image_id == store.stored.image_id);
            match known {
                Some(known) => {
                    known.in_ram = true;
                    known.directories.push(store.stored.directory);
                }
                None => kept.push(Kept::new(store, durable)),
            }
        }
    }
    Ok(kept)
}

impl Kept {
    fn new(store: Store, durable: bool) -> Self {
        let Store { stored, origin } = store;
        let image_path = origin.as_ref().map(|origin| origin.image_path.clone());
        let image = image_path
            .as_deref()
            .map_or(Image::Unknown, |path| Image::at(path, stored.image_id));
        Self {
            image_id: stored.image_id,
            created: origin.as_ref().map(|origin| origin.created.clone()),
            container: origin.map(|origin| origin.container),
            bytes: stored.bytes,
            own_bytes: stored.own_bytes,
            in_ram: !durable,
            durable,
            complete: stored.complete,
            image_path,
            image,
            directories: vec![stored.directory],
            idle: stored.modified.elapsed().unwrap_or_default(),
        }
    }

    /// Why nobody needs it, as far as that can be seen from here.
    fn is_left_over(&self) -> Option<&'static str> {
        match self.image {
            Image::Gone => Some("its image is gone"),
            Image::Replaced => Some("another image has its place"),
            Image::Unknown if !self.complete && self.idle > CUT_OFF => {
                Some("its checkpoint was cut off")
            }
            Image::There | Image::Unknown => None,
        }
    }

    fn remove(&self) -> Result<(), MemoryCommandError> {
        for directory in &self.directories {
            memory_stores::remove(directory)?;
        }
        Ok(())
    }
}

impl Image {
    fn at(path: &Path, image_id: ImageId) -> Self {
        match Index::read(path) {
            Ok(Some(index)) if index.image_id == image_id => Self::There,
            Ok(Some(_)) => Self::Replaced,
            Ok(None) => Self::Gone,
            Err(_) => Self::Unknown,
        }
    }
}

/// Removes the bulk memory whose name begins with `id`, whoever needs it; gives its whole name.
///
/// # Errors
/// [`MemoryCommandError`].
pub fn remove(settings: &Settings, id: &str) -> Result<ImageId, MemoryCommandError> {
    let all = list(settings)?;
    let mut named = all
        .iter()
        .filter(|kept| kept.image_id.to_string().starts_with(id));
    let kept = named
        .next()
        .ok_or_else(|| MemoryCommandError::None(id.to_owned()))?;
    if named.next().is_some() || id.is_empty() {
        return Err(MemoryCommandError::Several(id.to_owned()));
    }
    kept.remove()?;
    Ok(kept.image_id)
}

/// What is done about what seems to be left over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prune {
    /// It is shown.
    Show,
    /// It is removed.
    Remove,
}

/// Finds what no image that was put on this machine needs any more; one line for each.
///
/// # Errors
/// [`MemoryCommandError`].
pub fn prune(settings: &Settings, what: Prune) -> Result<Vec<String>, MemoryCommandError> {
    let mut said = Vec::new();
    for kept in list(settings)? {
        let Some(why) = kept.is_left_over() else {
            continue;
        };
        if what == Prune::Remove {
            kept.remove()?;
        }
        let place = kept
            .image_path
            .as_deref()
            .map(|path| format!(" ({})", path.display()));
        said.push(format!(
            "{} {}: {why}{}",
            kept.image_id,
            mib(kept.own_bytes),
            place.unwrap_or_default()
        ));
    }
    let disk = &Stores::of(settings).disk;
    let io = |source| MemoryCommandError::Io {
        path: disk.clone(),
        source,
    };
    for (path, modified) in memory_stores::partial_in(disk).map_err(io)? {
        if modified.elapsed().unwrap_or_default() > CUT_OFF {
            if what == Prune::Remove {
                fs::remove_dir_all(&path).map_err(io)?;
            }
            said.push(format!("{}: its copying was cut off", path.display()));
        }
    }
    Ok(said)
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match (self.in_ram, self.durable) {
            (true, true) => "memory and disk",
            (true, false) => "memory only",
            _ => "disk",
        };
        write!(f, "{} {}", self.image_id, mib(self.bytes))?;
        write!(f, " ({} its own), {place}", mib(self.own_bytes))?;
        if !self.complete {
            f.write_str(", incomplete")?;
        }
        if let (Some(container), Some(created)) = (&self.container, &self.created) {
            write!(f, ", container {container} at {created}")?;
        }
        if let Some(path) = &self.image_path {
            let state = match self.image {
                Image::There => "",
                Image::Replaced => " (another image is there now)",
                Image::Gone => " (not there any more)",
                Image::Unknown => " (cannot be read)",
            };
            write!(f, ", image {}{state}", path.display())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_stores::tests::{origin, store};
    use std::fs::File;
    use std::time::SystemTime;

    fn settings(directory: &Path) -> Settings {
        let mut settings = Settings::default();
        settings.bulk_memory.directory = directory.join("disk");
        settings.paths.state_dir = directory.to_owned();
        for name in ["disk", "memory"] {
            fs::create_dir(directory.join(name)).unwrap();
        }
        settings
    }

    #[test]
    fn what_is_in_memory_and_on_disk_is_listed_once() {
        let directory = tempfile::tempdir().unwrap();
        let settings = settings(directory.path());
        let stores = Stores::of(&settings);
        store(&stores.disk, 1, &origin("c1", 1));
        store(&stores.ram, 1, &origin("c1", 1));
        store(&stores.ram, 2, &origin("c1", 2));
        let kept = list(&settings).unwrap();
        assert_eq!(kept.len(), 2);
        assert!(kept[0].in_ram && kept[0].durable && kept[1].in_ram && !kept[1].durable);
        let said = kept[1].to_string();
        assert!(said.contains("memory only, container c1"), "{said}");
        assert!(said.ends_with("/images/1 (not there any more)"), "{said}");

        let name = ImageId::new(1).to_string();
        assert!(remove(&settings, &name[..10]).is_err(), "of several");
        assert_eq!(remove(&settings, &name).unwrap(), ImageId::new(1));
        assert!(remove(&settings, &name).is_err());
        assert_eq!(list(&settings).unwrap().len(), 1);
    }

    #[test]
    fn only_what_no_image_needs_is_pruned() {
        let directory = tempfile::tempdir().unwrap();
        let settings = settings(directory.path());
        let disk = Stores::of(&settings).disk;
        let image = |name: &str| directory.path().join(name);
        for (id, name) in [(1, "there"), (2, "replaced"), (3, "gone")] {
            let mut origin = origin("c1", 1);
            origin.image_path = image(name);
            store(&disk, id, &origin);
        }
        for (id, name) in [(1, "there"), (7, "replaced")] {
            let index = Index {
                image_id: ImageId::new(id),
                tier: stasis_memory_store::Tier::Disk,
                packs: Vec::new(),
                processes: Vec::new(),
            };
            fs::create_dir(image(name)).unwrap();
            fs::write(
                image(name).join(stasis_memory_store::INDEX_FILE),
                index.encode(),
            )
            .unwrap();
        }
        // One that is being made, and two that were cut off.
        let being_made = disk.join(ImageId::new(4).to_string());
        fs::create_dir(&being_made).unwrap();
        let long_ago = SystemTime::now() - 2 * CUT_OFF;
        for name in [
            ImageId::new(5).to_string(),
            format!("{}.partial", ImageId::new(6)),
        ] {
            fs::create_dir(disk.join(&name)).unwrap();
            File::open(disk.join(name))
                .unwrap()
                .set_modified(long_ago)
                .unwrap();
        }
        assert_eq!(prune(&settings, Prune::Show).unwrap().len(), 4);
        let said = prune(&settings, Prune::Remove).unwrap();
        assert_eq!(said.len(), 4, "{said:?}");
        let mut left: Vec<_> = memory_stores::names_in(&disk).unwrap();
        left.sort();
        let left: Vec<_> = left.into_iter().map(|(name, _)| name).collect();
        assert_eq!(left, [1, 4].map(|id| ImageId::new(id).to_string()));
    }
}
