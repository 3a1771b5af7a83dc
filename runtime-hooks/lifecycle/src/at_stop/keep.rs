//! How many images of stopped containers a key keeps: older images are removed once there is a new
//! one, never before. Images that existed when a container started cold belong to an earlier life
//! of its job, and stay.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use stasis_config::Settings;

use crate::stopped::{ENDING, key};
use stasis_engine::bulk_memory::in_use::Removed;
use stasis_engine::bulk_memory::places::Places;
use stasis_engine::error::chain;
use stasis_engine::image::directory::in_use::hold_alone;
use stasis_engine::image::directory::{removal, remove_rest};
use stasis_engine::image::manifest::Manifest;
use stasis_engine::image::recorded::{Needed, needed, user_of};
use stasis_engine::image::retention::{Candidate, Completeness, Rule, not_kept, state_of};

/// Removes all but the last `keep` whole images of stopped containers from the directory of `own`,
/// the image that was just made; also what no process writes any more of images that were cut off.
/// Images in use stay, and so does `own`, whatever time its name has. Returns notes for the log.
pub(super) fn keep_last(settings: &Settings, own: &Path, keep: usize) -> Vec<String> {
    let directory = own.parent().unwrap_or(Path::new("/"));
    let places = Places::of(settings);
    let found = images_in(directory).and_then(|images| Ok((images, key::left(directory)?)));
    let (images, left) = match found {
        Ok(found) => found,
        Err(error) => return vec![format!("{} cannot be read: {error}", directory.display())],
    };
    let is_left = |image: &Path| image.file_name() <= left.as_deref().map(OsStr::new);
    let Ok(needed) = needed(&settings.paths.state_dir) else {
        return vec!["no image was removed: it is not known who uses which".to_owned()];
    };
    let images = images.into_iter().map(|image| {
        let state = state_of(&image, |id| places.has(id));
        (image, state)
    });
    let is_meant = |(image, state): &(PathBuf, Completeness)| match state {
        Completeness::CutOff => {
            if user_in(&needed, image).is_none() {
                // Its empty directory stays: another stop may be about to begin there.
                let _ = remove_rest(image);
            }
            false
        }
        Completeness::Whole | Completeness::Doubtful => image == own || !is_left(image),
    };
    let images: Vec<_> = images.filter(is_meant).collect();
    let candidate = |(image, state): &(PathBuf, Completeness)| Candidate {
        order: (image == own, image.clone()),
        created: None,
        state: *state,
        is_used: image == own || user_in(&needed, image).is_some(),
    };
    let set: Vec<_> = images.iter().map(candidate).collect();
    let going = not_kept(&set, Rule::last(keep));
    going
        .iter()
        .filter_map(|going| {
            let image = &images[going.index].0;
            let removed = match user_in(&needed, image) {
                Some(user) => Err(user.to_owned()),
                None => remove(&places, image),
            };
            let why = removed.err()?;
            let image = image.display();
            Some(format!("{image} is not kept, and stays for now: {why}"))
        })
        .collect()
}

/// Who needs an image, by a record.
fn user_in<'n>(needed: &'n [Needed], image: &Path) -> Option<&'n str> {
    let canonical = fs::canonicalize(image);
    user_of(needed, canonical.as_deref().unwrap_or(image))
}

/// The images of stopped containers.
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
    Ok(found)
}

/// Removes GPU contents first: as long as the manifest exists, the next try knows of them.
fn remove(places: &Places, image: &Path) -> Result<(), String> {
    let in_use = || "somebody uses it".to_owned();
    let alone = hold_alone(image).map_err(|error| chain(&error))?;
    let alone = alone.ok_or_else(in_use)?;
    let manifest = Manifest::read(image).map_err(|error| chain(&error))?;
    if let Some(id) = manifest.and_then(|manifest| manifest.contents_apart())
        && places.remove(id).map_err(|error| chain(&error))? == Removed::InUse
    {
        return Err(in_use());
    }
    removal::remove(image, &alone).map_err(|error| chain(&error))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use serde_json::json;
    use stasis_memory_store::{INDEX_FILE, ImageId, PacksIn, STORE_INDEX_FILE};
    use tempfile::TempDir;

    use super::*;
    use crate::tests::make_images;
    use stasis_engine::bulk_memory::places::of_image;
    use stasis_engine::image::directory::in_use::hold;
    use stasis_engine::image::manifest::StoredMemory;
    use stasis_engine::operation::directory_of;
    use stasis_host::file_lock::unlock;

    struct Machine {
        directory: TempDir,
        settings: Settings,
    }

    impl Machine {
        fn with(images: &[&str]) -> Self {
            let directory = tempfile::tempdir().unwrap();
            make_images(&directory.path().join("key"), images);
            let mut settings = Settings::default();
            settings.paths.state_dir = directory.path().join("state");
            settings.gpu_contents.directory = directory.path().join("memory");
            Self {
                directory,
                settings,
            }
        }

        fn key(&self) -> PathBuf {
            self.directory.path().join("key")
        }

        fn keep_last(&self, own: &str, keep: usize) -> Vec<String> {
            let own = self.key().join(own);
            keep_last(&self.settings, &own, keep)
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
        assert_eq!(machine.keep_last("3-stop", 2), [""; 0]);
        assert_eq!(machine.left(), ["1", "2-stop", "3-stop", "4"]);
    }

    /// As if the clock was ahead when the others were made.
    #[test]
    fn the_image_that_was_just_made_is_the_newest_whatever_the_clock_says() {
        let machine = Machine::with(&["2098-stop", "2099-stop", "2026-stop"]);
        assert_eq!(machine.keep_last("2026-stop", 2), [""; 0]);
        assert_eq!(machine.left(), ["2026-stop", "2099-stop"]);
        machine.keep_last("2026-stop", 1);
        assert_eq!(machine.left(), ["2026-stop"]);
    }

    #[test]
    fn what_a_cold_start_has_found_stays() {
        let machine = Machine::with(&["1-stop", "2-stop"]);
        key::leave(&machine.key()).unwrap();
        make_images(&machine.key(), &["3-stop", "4-stop"]);
        machine.keep_last("4-stop", 1);
        assert_eq!(machine.left(), ["1-stop", "2-stop", "4-stop"]);
        key::mark_continued(&machine.key().join("2-stop")).unwrap();
        machine.keep_last("4-stop", 1);
        assert_eq!(machine.left(), ["4-stop"]);
    }

    #[test]
    fn what_is_not_whole_does_not_count_and_is_no_rest_either() {
        let machine = Machine::with(&["1-stop", "2-stop", "3-stop"]);
        // Its memory is elsewhere, and it has no manifest that names the place.
        fs::write(machine.key().join("2-stop").join(INDEX_FILE), "index").unwrap();
        assert_eq!(machine.keep_last("3-stop", 2), [""; 0]);
        assert_eq!(machine.left(), ["1-stop", "2-stop", "3-stop"]);
        machine.keep_last("3-stop", 1);
        assert_eq!(machine.left(), ["3-stop"]);
    }

    #[test]
    fn an_image_whose_contents_are_gone_does_not_count() {
        let machine = Machine::with(&["1-stop", "2-stop", "3-stop"]);
        let image_id = ImageId::new(7);
        let mut manifest = Manifest::new("c1", String::new(), String::new());
        manifest.memory = Some(StoredMemory {
            image_id,
            packs_in: PacksIn::Directory,
        });
        manifest.files = Some(Vec::new());
        manifest.write(&machine.key().join("2-stop")).unwrap();
        machine.keep_last("3-stop", 2);
        assert_eq!(machine.left(), ["1-stop", "2-stop", "3-stop"]);
        let contents = of_image(&machine.directory.path().join("memory"), image_id);
        fs::create_dir_all(&contents).unwrap();
        fs::write(contents.join(STORE_INDEX_FILE), "index").unwrap();
        machine.keep_last("3-stop", 2);
        assert_eq!(machine.left(), ["2-stop", "3-stop"]);
    }

    #[test]
    fn what_is_used_stays_for_now() {
        let machine = Machine::with(&["1-stop", "2-stop"]);
        let used = hold(&machine.key().join("1-stop")).unwrap();
        let notes = machine.keep_last("2-stop", 1);
        assert!(
            notes[0].contains("1-stop") && notes[0].contains("uses it"),
            "{notes:?}"
        );
        drop(used);
        machine.keep_last("2-stop", 1);
        assert_eq!(machine.left(), ["2-stop"]);
    }

    /// A checkpoint was cut off before its inventory, and the processes lack what it has stored.
    #[test]
    fn a_rest_that_has_gpu_contents_of_a_living_container_stays() {
        let machine = Machine::with(&["2-stop"]);
        let image = machine.key().join("1-stop");
        let rest = image.join(".stasis-new");
        fs::create_dir_all(&rest).unwrap();
        let state_dir = &machine.settings.paths.state_dir;
        let operation = directory_of(state_dir, Path::new("/run/runc"), "c1");
        fs::create_dir_all(&operation).unwrap();
        let away = json!({
            "places": [rest, image],
            "image_id": ImageId::new(7).to_string(),
            "store": null,
            "in_files": [],
        });
        let record = operation.join("gpu-contents-away.json");
        fs::write(&record, away.to_string()).unwrap();
        machine.keep_last("2-stop", 1);
        assert!(rest.exists());
        fs::remove_file(record).unwrap();
        machine.keep_last("2-stop", 1);
        assert!(!rest.exists());
    }

    #[test]
    fn the_rest_of_what_was_cut_off_goes_unless_somebody_writes_it() {
        let machine = Machine::with(&["2-stop"]);
        let rest = machine.key().join("1-stop").join(".stasis-new");
        fs::create_dir_all(&rest).unwrap();
        let writer = File::open(&rest).unwrap();
        writer.lock().unwrap();
        machine.keep_last("2-stop", 1);
        assert!(rest.exists());
        // A process that another test has just started may have the file open for a moment.
        unlock(&writer).unwrap();
        machine.keep_last("2-stop", 1);
        assert!(!rest.exists());
        assert_eq!(machine.left(), ["1-stop", "2-stop"]);
    }
}
