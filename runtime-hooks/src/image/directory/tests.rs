use super::*;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use stasis_linux::ProcessRef;

use crate::operation::group::{GroupMember, NewGroup};
use crate::request::AfterDump;

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
    (INVENTORY, "earlier"),
    (manifest::FILE_NAME, "earlier"),
    (INDEX_FILE, "earlier"),
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

#[test]
fn without_an_earlier_image_it_is_made_where_it_belongs() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), &[("notes", "mine")]);
    let image = NewImage::begin(directory.path()).unwrap();
    assert_eq!(image.path(), directory.path());
    write(image.path(), &LATER);
    image.commit(None, FileSystem::sync).unwrap();
}

#[test]
fn the_directory_is_made_with_those_above_it() {
    let above = tempfile::tempdir().unwrap();
    let path = above.path().join("a/new/image");
    NewImage::begin(&path).unwrap();
    assert!(path.is_dir());
    std::fs::write(above.path().join("file"), "").unwrap();
    assert!(NewImage::begin(&above.path().join("file/image")).is_err());
}

#[test]
fn a_complete_image_takes_the_place_of_the_earlier_one() {
    let directory = earlier();
    let image = NewImage::begin(directory.path()).unwrap();
    write(image.path(), &LATER);
    image.commit(None, FileSystem::sync).unwrap();
    is_whole(directory.path(), &LATER);
}

#[test]
fn an_image_without_its_inventory_is_refused_and_goes() {
    let directory = earlier();
    let image = NewImage::begin(directory.path()).unwrap();
    write(image.path(), &LATER[..2]);
    let error = image.commit(None, FileSystem::sync).unwrap_err();
    assert!(
        matches!(error, ImageDirectoryError::Incomplete(_)),
        "{error}"
    );
    image.give_up(&ended());
    is_whole(directory.path(), &EARLIER);
}

#[test]
fn a_failed_checkpoint_leaves_the_earlier_image() {
    let directory = earlier();
    let image = NewImage::begin(directory.path()).unwrap();
    write(image.path(), &LATER);
    image.give_up(&living());
    is_whole(directory.path(), &EARLIER);
}

#[test]
fn a_complete_image_of_a_container_that_has_ended_stays() {
    let directory = earlier();
    let image = NewImage::begin(directory.path()).unwrap();
    write(image.path(), &LATER);
    image.give_up(&ended());
    is_whole(directory.path(), &LATER);

    let directory = tempfile::tempdir().unwrap();
    let image = NewImage::begin(directory.path()).unwrap();
    write(image.path(), &EARLIER);
    image.give_up(&ended());
    is_whole(directory.path(), &EARLIER);
}

/// As if the operation had been killed after each of its steps.
#[test]
fn what_was_cut_off_is_taken_up_by_the_next() {
    let incomplete = |directory: &Path| {
        let image = NewImage::begin(directory).unwrap();
        write(image.path(), &LATER[..2]);
    };
    let directory = earlier();
    incomplete(directory.path());
    settle(directory.path()).unwrap();
    assert_eq!(
        fs::read_to_string(directory.path().join("core-1.img")).unwrap(),
        "earlier"
    );
    let image = NewImage::begin(directory.path()).unwrap();
    assert_eq!(names(image.path()), [BOOT.to_owned()].into());
    image.give_up(&living());
    is_whole(directory.path(), &EARLIER);

    for step in ["complete", "renamed", "inventory moved", "one more moved"] {
        let directory = earlier();
        let image = NewImage::begin(directory.path()).unwrap();
        write(image.path(), &LATER);
        drop(image);
        let (new, complete) = (directory.path().join(NEW), directory.path().join(COMPLETE));
        let moves = |name: &str| rename(&complete.join(name), &directory.path().join(name));
        if step != "complete" {
            rename(&new, &complete).unwrap();
        }
        if step.ends_with("moved") {
            fs::remove_file(directory.path().join(manifest::FILE_NAME)).unwrap();
            fs::remove_file(directory.path().join(INDEX_FILE)).unwrap();
            moves(INVENTORY).unwrap();
        }
        if step.starts_with("one more") {
            moves("pages-1.img").unwrap();
        }
        settle(directory.path()).unwrap();
        is_whole(directory.path(), &LATER);
    }
}

/// Nobody has waited for the disk before the machine restarted.
#[test]
fn what_another_boot_has_left_is_no_image() {
    let directory = earlier();
    let image = NewImage::begin(directory.path()).unwrap();
    write(image.path(), &LATER);
    assert!(!is_settled(directory.path()));
    fs::write(image.path().join(BOOT), "another").unwrap();
    assert!(is_settled(directory.path()));
    drop(image);
    settle(directory.path()).unwrap();
    let image = NewImage::begin(directory.path()).unwrap();
    image.give_up(&living());
    is_whole(directory.path(), &EARLIER);
}

#[test]
fn two_checkpoints_do_not_share_a_directory() {
    let directory = earlier();
    let _first = NewImage::begin(directory.path()).unwrap();
    let error = NewImage::begin(directory.path()).unwrap_err();
    assert!(matches!(error, ImageDirectoryError::Busy(_)), "{error}");
}

#[test]
fn an_image_that_lacks_memory_keeps_its_link_to_the_one_that_has_it() {
    let directory = earlier();
    let image = NewImage::begin(directory.path()).unwrap();
    write(image.path(), &LATER);
    symlink("../../pre", image.path().join(PARENT)).unwrap();
    image.commit(None, FileSystem::sync).unwrap();
    let link = fs::read_link(directory.path().join(PARENT)).unwrap();
    assert_eq!(link, Path::new("../pre"));
}

#[test]
fn what_an_image_from_elsewhere_has_instead_of_a_directory_is_refused() {
    for name in [NEW, COMPLETE] {
        let directory = earlier();
        symlink("/etc", directory.path().join(name)).unwrap();
        let error = settle(directory.path()).unwrap_err();
        assert!(matches!(error, ImageDirectoryError::Io { .. }), "{error}");
    }
}

#[test]
fn an_image_of_a_group_takes_its_place_with_the_others() {
    let images = tempfile::tempdir().unwrap();
    let directory = images.path().join("c1");
    let member = GroupMember {
        id: "c1".to_owned(),
        root: "/run/runc".into(),
        name: None,
        engine: None,
        image: "c1".to_owned(),
    };
    let after = AfterDump::Exit;
    let new = NewGroup::begin(images.path(), String::new(), after, vec![member]).unwrap();
    let group = Group::of_container(new.pending(), Path::new("/run/runc"), "c1").unwrap();
    let image = NewImage::begin_in(&directory, Some(&group)).unwrap();
    fs::write(image.path().join(INVENTORY), "1").unwrap();
    image.commit(None, FileSystem::sync).unwrap();
    assert!(!has_inventory(&directory));
    // Whoever wrote it is killed.
    drop(image);
    settle(&directory).unwrap();
    assert!(!has_inventory(&directory));
    new.complete().unwrap();
    settle(&directory).unwrap();
    assert!(has_inventory(&directory));
    assert!(!directory.join(NEW).exists() && !directory.join(GROUP).exists());
}
