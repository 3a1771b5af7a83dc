//! Removes an image that is not to be kept.

use std::fs;
use std::io;
use std::path::Path;

use stasis_linux::file;

use super::in_use::Alone;
use super::step::change;
use super::{INVENTORY, ImageDirectoryError, ORIGIN, PARENT, failed, remove_rest};
use crate::image::files::is_listed;
use crate::image::manifest;

/// Files that CRIU puts beside an image if it has no other work directory.
const BESIDE: [&str; 4] = ["stats-dump", "stats-restore", "dump.log", "restore.log"];

/// Removes an image, and the directory if nothing else is in it.
pub fn remove(directory: &Path, _alone: &Alone) -> Result<(), ImageDirectoryError> {
    remove_rest(directory)?;
    clear(directory)?;
    for name in BESIDE {
        let path = directory.join(name);
        change(|| file::remove(&path)).map_err(failed("remove", &path))?;
    }
    match change(|| fs::remove_dir(directory)) {
        // The directory has files of the caller, too.
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        done => done.map_err(failed("remove", directory)),
    }
}

/// Removes the files of an image: the inventory first, without which there is no image, and the
/// manifest last, so that the remains of a crash here are still known.
pub(super) fn clear(directory: &Path) -> Result<(), ImageDirectoryError> {
    let inventory = directory.join(INVENTORY);
    change(|| file::remove(&inventory)).map_err(failed("remove", &inventory))?;
    for entry in fs::read_dir(directory).map_err(failed("read", directory))? {
        let entry = entry.map_err(failed("read", directory))?;
        if is_of_image(&entry) {
            let path = entry.path();
            change(|| file::remove(&path)).map_err(failed("remove", &path))?;
        }
    }
    let manifest = directory.join(manifest::FILE_NAME);
    change(|| file::remove(&manifest)).map_err(failed("remove", &manifest))
}

fn is_of_image(entry: &fs::DirEntry) -> bool {
    let name = entry.file_name();
    let is_named_so = |name: &str| is_listed(name) || [PARENT, ORIGIN].contains(&name);
    name.to_str().is_some_and(is_named_so) && entry.file_type().is_ok_and(|kind| !kind.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::directory::in_use::hold_alone;
    use crate::image::manifest::FILE_NAME;

    #[test]
    fn only_files_of_the_image_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let image = parent.path().join("image");
        let files = [
            INVENTORY,
            "core-1.img",
            FILE_NAME,
            "dump.log",
            "stats-dump",
            ORIGIN,
        ];
        let make = |more: &[&str]| {
            fs::create_dir_all(&image).unwrap();
            for name in files.iter().chain(more) {
                fs::write(image.join(name), "x").unwrap();
            }
        };
        make(&[]);
        remove(&image, &hold_alone(&image).unwrap().unwrap()).unwrap();
        assert!(!image.exists());

        make(&["config.json"]);
        fs::create_dir(image.join("mine.img")).unwrap();
        remove(&image, &hold_alone(&image).unwrap().unwrap()).unwrap();
        let left = fs::read_dir(&image).unwrap();
        let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["config.json", "mine.img"]);
    }
}
