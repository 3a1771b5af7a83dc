mod apart;
pub(super) mod change;
mod disk;
mod failing;
mod left;
pub(super) mod model;
mod orders;
mod power;
mod scene;
mod synced;
mod unread;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use stasis_config::Settings;
use stasis_host::file_lock::unlock;
use stasis_linux::ProcessRef;

use super::*;

fn names(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

fn write(directory: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        fs::write(directory.join(name), text).unwrap();
    }
}

const EARLIER: [(&str, &str); 4] = [
    ("core-1.img", "earlier"),
    ("core-9.img", "earlier"),
    (INVENTORY, "earlier"),
    (ORIGIN, "earlier"),
];
const LATER: [(&str, &str); 3] = [
    ("core-1.img", "later"),
    ("pages-1.img", "later"),
    (INVENTORY, "later"),
];

fn earlier() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), &EARLIER);
    directory
}

fn is_whole(directory: &Path, files: &[(&str, &str)]) {
    let expected: BTreeSet<String> = files.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names(directory), expected);
    for (name, text) in files {
        assert_eq!(fs::read_to_string(directory.join(name)).unwrap(), *text);
    }
}

fn ended() -> ProcessRef {
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let process = ProcessRef::open(i32::try_from(child.id()).unwrap())
        .unwrap()
        .unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    process
}

fn living() -> ProcessRef {
    ProcessRef::open(i32::try_from(std::process::id()).unwrap())
        .unwrap()
        .unwrap()
}

fn begin(directory: &Path) -> Result<NewImage, ImageDirectoryError> {
    NewImage::begin(&Settings::default(), directory, None)
}

/// Begins an image and writes the first files of it.
fn begun(directory: &Path, files: &[(&str, &str)]) -> NewImage {
    let image = begin(directory).unwrap();
    write(image.path(), files);
    image
}

fn commit(image: &NewImage) {
    let committed = image.commit(None, FileSystem::sync).unwrap();
    assert!(committed.0.is_none(), "{committed:?}");
}

/// Opens the image, and compares its files.
fn opens(directory: &Path, files: &[(&str, &str)]) {
    let opened = open(&Settings::default(), directory).unwrap();
    is_whole(opened.path(), files);
}

#[test]
fn an_image_is_written_apart_and_takes_its_place_in_one_step() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), &[("notes", "mine")]);
    let image = begun(directory.path(), &LATER);
    assert_eq!(
        names(directory.path()),
        [NEW.to_owned(), "notes".to_owned()].into()
    );
    commit(&image);
    is_whole(
        directory.path(),
        &[&LATER[..], &[("notes", "mine")]].concat(),
    );
    let earlier = earlier();
    commit(&begun(earlier.path(), &LATER));
    is_whole(earlier.path(), &LATER);
}

#[test]
fn the_directory_is_made_with_those_above_it() {
    let above = tempfile::tempdir().unwrap();
    let path = above.path().join("a/new/image");
    begin(&path).unwrap();
    assert!(path.is_dir());
    std::fs::write(above.path().join("file"), "").unwrap();
    assert!(begin(&above.path().join("file/image")).is_err());
}

#[test]
fn an_image_without_its_inventory_is_refused_and_goes() {
    let directory = earlier();
    let image = begun(directory.path(), &LATER[..2]);
    let error = image.commit(None, FileSystem::sync).unwrap_err();
    assert!(
        matches!(error, ImageDirectoryError::Incomplete(_)),
        "{error}"
    );
    assert_eq!(image.give_up(&ended()), None);
    is_whole(directory.path(), &EARLIER);
}

#[test]
fn a_failed_checkpoint_leaves_the_earlier_image() {
    let directory = earlier();
    assert_eq!(begun(directory.path(), &LATER).give_up(&living()), None);
    is_whole(directory.path(), &EARLIER);
}

#[test]
fn whoever_reads_an_image_keeps_it_and_the_next_gets_the_new_one() {
    let directory = earlier();
    let reader = open(&Settings::default(), directory.path()).unwrap();
    let image = begun(directory.path(), &LATER);
    let committed = image.commit(None, FileSystem::sync).unwrap();
    assert!(
        matches!(committed.0, Some(ImageDirectoryError::Read(_))),
        "{committed:?}"
    );
    assert_eq!(
        fs::read_to_string(reader.path().join("core-1.img")).unwrap(),
        "earlier"
    );
    let next = open(&Settings::default(), directory.path()).unwrap();
    assert_eq!(next.path(), directory.path().join(COMPLETE));
    assert_eq!(
        fs::read_to_string(next.path().join("core-1.img")).unwrap(),
        "later"
    );
    let error = begin(directory.path()).unwrap_err();
    assert!(matches!(error, ImageDirectoryError::Read(_)), "{error}");
    drop((reader, next));
    opens(directory.path(), &LATER);
}

#[test]
fn two_checkpoints_do_not_share_a_directory() {
    for directory in [earlier(), tempfile::tempdir().unwrap()] {
        let before = names(directory.path());
        let first = begin(directory.path()).unwrap();
        let error = begin(directory.path()).unwrap_err();
        assert!(matches!(error, ImageDirectoryError::Busy(_)), "{error}");
        first.give_up(&living());
        assert_eq!(names(directory.path()), before);
    }
}

#[test]
fn an_image_that_lacks_memory_keeps_its_link_to_the_one_that_has_it() {
    let directory = earlier();
    let image = begun(directory.path(), &LATER);
    symlink("../../pre", image.path().join(PARENT)).unwrap();
    commit(&image);
    let link = fs::read_link(directory.path().join(PARENT)).unwrap();
    assert_eq!(link, Path::new("../pre"));
}

#[test]
fn a_directory_may_be_named_by_a_link() {
    let directory = earlier();
    let above = tempfile::tempdir().unwrap();
    let link = above.path().join("latest");
    symlink(directory.path(), &link).unwrap();
    commit(&begun(&link, &LATER));
    is_whole(directory.path(), &LATER);
    let image = begun(&link, &EARLIER);
    assert_eq!(image.give_up(&ended()), Some(link.join(NEW)));
    unlock(&image.lock).unwrap();
    drop(open(&Settings::default(), &link).unwrap());
    is_whole(directory.path(), &EARLIER);
}

#[test]
fn what_an_image_from_elsewhere_has_instead_of_a_directory_is_refused() {
    for name in [NEW, COMPLETE, MOVING] {
        let directory = earlier();
        let elsewhere = tempfile::tempdir().unwrap();
        write(elsewhere.path(), &LATER);
        symlink(elsewhere.path(), directory.path().join(name)).unwrap();
        let error = open(&Settings::default(), directory.path()).unwrap_err();
        is_whole(elsewhere.path(), &LATER);
        assert!(matches!(error, ImageDirectoryError::Io { .. }), "{error}");
    }
}
