//! How many images of stopped containers a key keeps: the older ones go once there is a new one,
//! and never before.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use stasis_config::Settings;

use crate::bulk_memory::in_use::Removed;
use crate::bulk_memory::kept::{self, Kept};
use crate::bulk_memory::stores::Stores;
use crate::error::chain;
use crate::host::file_lock::{Sharing, Tried, try_lock};
use crate::image::directory::in_use::hold_alone;
use crate::image::directory::{has_inventory, removal};
use crate::image::manifest::Manifest;
use crate::image::stopped::ENDING;
use crate::operation::awaited_start::AwaitedStart;

/// Removes the images of stopped containers in the directory of a key but for the last `keep`
/// complete ones, and what such checkpoints have left that were cut off with the machine, if
/// `being_made`, the lock of who makes one, is nobody else's. What somebody uses stays. Returns
/// what is to be noted.
pub(super) fn keep_last(
    settings: &Settings,
    key: &Path,
    keep: usize,
    being_made: impl AsFd,
) -> Vec<String> {
    let images = match images_in(key) {
        Ok(images) => images,
        Err(error) => return vec![format!("{} cannot be read: {error}", key.display())],
    };
    let (complete, cut_off): (Vec<_>, Vec<_>) =
        images.into_iter().partition(|image| has_inventory(image));
    let older = complete.len().saturating_sub(keep);
    let mut going = complete[..older].to_vec();
    if matches!(try_lock(being_made, Sharing::Exclusive), Ok(Tried::Locked)) {
        going.extend(cut_off);
    }
    if going.is_empty() {
        return Vec::new();
    }
    let removed = remove_all(settings, &going);
    let note = |(image, why): (&PathBuf, String)| {
        format!("{} is not kept, and stays for now: {why}", image.display())
    };
    going
        .iter()
        .zip(removed)
        .filter_map(|(image, removed)| Some(note((image, removed.err()?))))
        .collect()
}

/// Those of stopped containers, the oldest first.
fn images_in(key: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(key)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_ours = name.to_str().is_some_and(|name| name.ends_with(ENDING));
        if is_ours && entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn remove_all(settings: &Settings, going: &[PathBuf]) -> Vec<Result<(), String>> {
    let stores = Stores::of(settings);
    let kept = kept::all(&stores);
    let awaited = AwaitedStart::all(&settings.paths.state_dir);
    let (Ok(kept), Ok(awaited)) = (kept, awaited) else {
        return vec![Err("it is not known who uses it".to_owned()); going.len()];
    };
    let is_awaited = |image: &PathBuf| awaited.iter().any(|(_, start)| start.image == *image);
    let remove = |image| match is_awaited(image) {
        true => Err("a container was created from it, and is not started yet".to_owned()),
        false => remove(&stores, &kept, image),
    };
    going.iter().map(remove).collect()
}

/// The store goes first: as long as the manifest is there, the next try knows of it.
fn remove(stores: &Stores, kept: &[Kept], image: &Path) -> Result<(), String> {
    let in_use = || "somebody uses it".to_owned();
    let alone = hold_alone(image).map_err(|error| chain(&error))?;
    let alone = alone.ok_or_else(in_use)?;
    let manifest = Manifest::read(image).map_err(|error| chain(&error))?;
    let id = manifest
        .and_then(|manifest| manifest.memory)
        .map(|memory| memory.image_id);
    let stored = kept.iter().find(|kept| Some(kept.image_id) == id);
    if let Some(stored) = stored
        && stored.remove(stores).map_err(|error| chain(&error))? == Removed::InUse
    {
        return Err(in_use());
    }
    removal::remove(image, &alone).map_err(|error| chain(&error))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use stasis_linux::directory::Directory;
    use tempfile::TempDir;

    use super::*;
    use crate::host::file_lock::unlock;
    use crate::image::being_made;
    use crate::image::directory::INVENTORY;
    use crate::image::directory::in_use::hold;

    struct Machine {
        directory: TempDir,
        settings: Settings,
    }

    impl Machine {
        fn with(images: &[&str]) -> Self {
            let directory = tempfile::tempdir().unwrap();
            for image in images {
                let image = directory.path().join("key").join(image);
                fs::create_dir_all(&image).unwrap();
                fs::write(image.join(INVENTORY), "inventory").unwrap();
            }
            let mut settings = Settings::default();
            settings.paths.state_dir = directory.path().join("state");
            settings.bulk_memory.directory = directory.path().join("memory");
            Self {
                directory,
                settings,
            }
        }

        fn key(&self) -> PathBuf {
            self.directory.path().join("key")
        }

        fn lock(&self) -> File {
            being_made::show(&Directory::make(&self.key(), 0o700).unwrap()).unwrap()
        }

        fn left(&self) -> Vec<String> {
            let left = fs::read_dir(self.key()).unwrap();
            let names = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let mut names: Vec<_> = names.filter(|name| !name.starts_with('.')).collect();
            names.sort();
            names
        }
    }

    #[test]
    fn the_last_ones_stay_and_so_do_all_that_no_stop_has_made() {
        let machine = Machine::with(&["1-stop", "2-stop", "3-stop", "1", "4"]);
        let notes = keep_last(&machine.settings, &machine.key(), 2, machine.lock());
        assert_eq!(notes, [""; 0]);
        assert_eq!(machine.left(), ["1", "2-stop", "3-stop", "4"]);
    }

    #[test]
    fn what_is_used_stays_for_now() {
        let machine = Machine::with(&["1-stop", "2-stop"]);
        let used = hold(&machine.key().join("1-stop")).unwrap();
        let notes = keep_last(&machine.settings, &machine.key(), 1, machine.lock());
        assert!(
            notes[0].contains("1-stop") && notes[0].contains("uses it"),
            "{notes:?}"
        );
        drop(used);
        keep_last(&machine.settings, &machine.key(), 1, machine.lock());
        assert_eq!(machine.left(), ["2-stop"]);
    }

    #[test]
    fn what_was_cut_off_goes_unless_somebody_may_be_at_it() {
        let machine = Machine::with(&["2-stop"]);
        fs::create_dir(machine.key().join("1-stop")).unwrap();
        let another = machine.lock();
        keep_last(&machine.settings, &machine.key(), 1, machine.lock());
        assert_eq!(machine.left(), ["1-stop", "2-stop"]);
        // What another test has just started may have the file open for a moment.
        unlock(&another).unwrap();
        keep_last(&machine.settings, &machine.key(), 1, machine.lock());
        assert_eq!(machine.left(), ["2-stop"]);
    }
}
