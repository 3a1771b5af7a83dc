//! Power failures before each change of a checkpoint, on real file systems: the state of the disk
//! is copied, and mounted as after a boot.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::super::*;
use super::begin;
use super::change::{Call, asking, change};
use super::disk::{BTRFS, Disk, EXT4, Kind, XFS, can_mount, new_disk};
use super::scene::{Before, next_finds, write_image};

const NEXT: &str = "next";

/// Writes by others before power fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Others {
    Nothing,
    /// A process brings a file of its own to disk: names get there, and the contents of other files
    /// may not.
    Sync,
}

/// A copy of what a disk has when its power fails.
struct Cut {
    copy: PathBuf,
    /// Whether the checkpoint had been reported as done by then.
    is_done: bool,
    said: String,
}

/// Copies a disk whenever it has changed.
struct Cutter {
    disk: Disk,
    others: Others,
    calls: usize,
    writes: u64,
    cuts: Vec<Cut>,
}

impl Cutter {
    fn cut(&mut self, is_done: bool) {
        self.calls += 1;
        if self.others == Others::Sync {
            let mut file = File::create(self.disk.at.join("others")).unwrap();
            file.write_all(b"not ours").unwrap();
            file.sync_all().unwrap();
        }
        let writes = self.disk.writes();
        if writes == self.writes && !is_done {
            return;
        }
        self.writes = writes;
        let copy = self.disk.copy(&self.calls.to_string());
        let said = format!("{:?} before call {}", self.others, self.calls);
        self.cuts.push(Cut {
            copy,
            is_done,
            said,
        });
    }
}

/// Makes a checkpoint, and cuts the power before each of its changes and once it is done.
fn cuts(disk: Disk, before: Before, others: Others) -> Vec<Cut> {
    let directory = disk.at.join("image");
    fs::create_dir(&directory).unwrap();
    before.make(&directory);
    FileSystem::of(&directory).unwrap().sync().unwrap();
    let cutter = Rc::new(RefCell::new(Cutter {
        disk,
        others,
        calls: 0,
        writes: 0,
        cuts: Vec::new(),
    }));
    let before_each = cutter.clone();
    let hook = move || {
        before_each.borrow_mut().cut(false);
        Call::IsMade
    };
    let committed = asking(hook, || {
        let image = begin(&directory).unwrap();
        write_image(image.path(), NEXT).unwrap();
        let sync = |system: &FileSystem| change(|| system.sync());
        image.commit(None, sync).unwrap()
    });
    assert!(committed.0.is_none(), "{committed:?}");
    cutter.borrow_mut().cut(true);
    Rc::into_inner(cutter).unwrap().into_inner().cuts
}

/// Returns what the next reader finds after a boot: another boot's page cache vouches for nothing.
fn found_after_boot(kind: &Kind, cut: Cut, at: &Path) -> Option<String> {
    let disk = Disk::mount(kind, cut.copy, at);
    let directory = disk.at.join("image");
    for place in places(&directory) {
        let boot = place.join(BOOT);
        if fs::read(&boot).is_ok_and(|boot| !boot.is_empty()) {
            fs::write(&boot, "another").unwrap();
        }
    }
    next_finds(&directory)
}

/// Verifies all cuts, in a directory without an image, with one, and with a committed one.
fn on(kind: &Kind) {
    if !can_mount(kind) {
        return;
    }
    let mut number = 0;
    for before in [Before::Nothing, Before::Earlier, Before::Complete] {
        let mut seen = BTreeSet::new();
        for others in [Others::Nothing, Others::Sync] {
            let below = tempfile::tempdir_in("/dev/shm").unwrap();
            let at = below.path().join("mounted");
            fs::create_dir(&at).unwrap();
            let disk = Disk::mount(kind, new_disk(kind, below.path()), &at);
            for cut in cuts(disk, before, others) {
                let (is_done, said) = (cut.is_done, cut.said.clone());
                println!("{} {before:?} {said}", kind.name);
                let found = found_after_boot(kind, cut, &at);
                let is_next = found.as_deref() == Some(NEXT);
                assert!(
                    is_next || !is_done && found.as_deref() == before.image(),
                    "{found:?}"
                );
                seen.insert(is_next);
                number += 1;
            }
        }
        assert_eq!(
            seen.len(),
            2,
            "power never failed on one side of the commit"
        );
    }
    println!("{number} cuts");
}

#[test]
fn power_fails_on_ext4() {
    on(&EXT4);
}

#[test]
fn power_fails_on_xfs() {
    on(&XFS);
}

#[test]
fn power_fails_on_btrfs() {
    on(&BTRFS);
}
