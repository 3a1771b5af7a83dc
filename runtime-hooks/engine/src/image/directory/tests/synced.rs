//! Names that are on disk before a checkpoint counts on them: a file system may bring the changes
//! of two directories to disk in any order.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::rc::Rc;

use super::super::*;
use super::begin;
use super::change::{Call, asking, change};
use super::scene::{Before, write_image};

/// Lists a directory before each change of a checkpoint into it, and once that is done.
fn names_before_each(before: Before) -> Vec<BTreeSet<String>> {
    let above = tempfile::tempdir_in("/dev/shm").unwrap();
    let directory = above.path().join("image");
    fs::create_dir(&directory).unwrap();
    before.make(&directory);
    let seen = Rc::new(RefCell::new(Vec::new()));
    let (see, looked_at) = (seen.clone(), directory.clone());
    let hook = move || {
        see.borrow_mut().push(super::names(&looked_at));
        Call::IsMade
    };
    asking(hook, || {
        let image = begin(&directory).unwrap();
        write_image(image.path(), "next").unwrap();
        let sync = |system: &FileSystem| change(|| system.sync());
        let committed = image.commit(None, sync).unwrap();
        assert!(committed.0.is_none(), "{committed:?}");
    });
    let mut seen = seen.take();
    seen.push(super::names(&directory));
    seen
}

#[test]
fn nothing_of_the_earlier_image_goes_before_the_commit_is_on_disk() {
    let seen = names_before_each(Before::Earlier);
    let committed = seen.iter().position(|names| names.contains(COMPLETE));
    let committed = committed.unwrap();
    // This call moves nothing here.
    assert_eq!(seen[committed + 1], seen[committed]);
    assert!(seen[committed + 1].contains(INVENTORY));
}

#[test]
fn a_checkpoint_is_done_once_its_names_are_on_disk() {
    for before in Before::ALL {
        let seen = names_before_each(before);
        let [.., before_the_last, done] = &seen[..] else {
            panic!("{seen:?}");
        };
        assert_eq!(before_the_last, done, "{before:?}");
        assert!(done.contains(INVENTORY), "{before:?}: {done:?}");
    }
}
