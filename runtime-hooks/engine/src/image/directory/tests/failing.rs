//! A disk that is full, or fails: at each call that changes a directory, once or from then on.

use std::cell::Cell;
use std::rc::Rc;

use nix::libc::{EIO, ENOSPC};
use stasis_config::Settings;
use stasis_host::file_lock::unlock;
use stasis_linux::ProcessRef;

use super::super::in_use::hold_alone;
use super::super::removal::remove;
use super::super::*;
use super::change::{Call, asking, change};
use super::scene::{Before, name_of, next_finds, write_image};
use super::{begin, ended, living};

/// The image that is being written.
const NEXT: &str = "next";
const FAULTS: [Call; 3] = [
    Call::Fails(ENOSPC),
    Call::Fails(EIO),
    Call::FailsOnceMade(EIO),
];

/// How long a fault lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lasts {
    OneCall,
    FromThenOn,
}

/// Calls `work` with each fault at each call, one after the other, and `check` on the outcome, in a
/// directory that begins as `before`; returns the number of faults.
fn at_each_call<T>(
    before: Before,
    work: impl Fn(&Path) -> T,
    check: impl Fn(&Path, T, Lasts),
) -> usize {
    let mut faults = 0;
    for call in FAULTS {
        for lasts in [Lasts::OneCall, Lasts::FromThenOn] {
            for at in 1.. {
                let above = tempfile::tempdir_in("/dev/shm").unwrap();
                let directory = above.path().join("image");
                std::fs::create_dir(&directory).unwrap();
                before.make(&directory);
                let made = Rc::new(Cell::new(0));
                let counter = made.clone();
                let fails = move || {
                    counter.set(counter.get() + 1);
                    match lasts {
                        Lasts::OneCall if counter.get() == at => call,
                        Lasts::FromThenOn if counter.get() >= at => call,
                        _ => Call::IsMade,
                    }
                };
                let done = asking(fails, || work(&directory));
                if made.get() < at {
                    break;
                }
                println!("{before:?}, {call:?} at {at}, {lasts:?}");
                check(&directory, done, lasts);
                faults += 1;
            }
        }
    }
    faults
}

/// The answer to the caller of a checkpoint.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    /// Done, perhaps with a note.
    Done,
    Failed,
    /// The image of a container which has ended is here.
    Kept(PathBuf),
}

/// As `checkpoint/seal.rs` has it.
fn checkpoint(directory: &Path, init: &ProcessRef) -> Told {
    let Ok(image) = begin(directory) else {
        return Told::Failed;
    };
    let sync = |_: &FileSystem| change(|| Ok(()));
    let written = write_image(image.path(), NEXT).is_ok();
    let told = match written && image.commit(None, sync).is_ok() {
        true => Told::Done,
        false => image.give_up(init).map_or(Told::Failed, Told::Kept),
    };
    unlock(&image.lock).unwrap();
    told
}

#[test]
fn a_checkpoint_that_goes_on_is_on_the_side_of_the_commit_that_its_caller_is_told() {
    let init = living();
    let mut faults = 0;
    for before in Before::ALL {
        let work = |directory: &Path| checkpoint(directory, &init);
        faults += at_each_call(before, work, |directory, told, lasts| {
            let found = next_finds(directory);
            let is_next = found.as_deref() == Some(NEXT);
            match (told, lasts) {
                (Told::Done, _) => assert!(is_next, "{found:?}"),
                // An image that cannot be removed is whole.
                (Told::Failed, Lasts::FromThenOn) if is_next => {}
                (Told::Failed, _) => assert_eq!(found.as_deref(), before.image()),
                (Told::Kept(_), _) => panic!("the container goes on"),
            }
        });
    }
    println!("{faults} faults");
    assert!(faults > 1000, "{faults}");
}

/// The image is the last copy of its container once it is written.
#[test]
fn a_checkpoint_whose_container_has_ended_is_never_lost() {
    let init = ended();
    let mut faults = 0;
    for before in Before::ALL {
        let work = |directory: &Path| checkpoint(directory, &init);
        faults += at_each_call(before, work, |directory, told, _| {
            if let Told::Kept(path) = &told {
                assert!(path.starts_with(directory), "{path:?}");
            }
            let expected = match told {
                Told::Done | Told::Kept(_) => Some(NEXT),
                Told::Failed => before.image(),
            };
            assert_eq!(next_finds(directory).as_deref(), expected);
        });
    }
    println!("{faults} faults");
    assert!(faults > 1000, "{faults}");
}

#[test]
fn a_reader_gets_the_image_of_the_directory_or_an_error() {
    let mut faults = 0;
    for before in Before::ALL {
        let read = |directory: &Path| {
            let opened = open(&Settings::default(), directory);
            opened.map(|opened| name_of(opened.path()))
        };
        faults += at_each_call(before, read, |directory, read, _| {
            if let Ok(read) = read {
                assert_eq!(read.as_deref(), before.image());
            }
            assert_eq!(next_finds(directory).as_deref(), before.image());
        });
    }
    println!("{faults} faults");
    assert!(faults > 100, "{faults}");
}

/// The kernel reports only once that a disk has not taken data.
#[test]
fn what_a_disk_has_refused_to_a_reader_is_trusted_by_its_hashes_alone() {
    let refused = Rc::new(Cell::new(0));
    let counter = refused.clone();
    let read = |directory: &Path| open(&Settings::default(), directory).map(drop);
    at_each_call(Before::Left, read, move |directory, read, lasts| {
        let is_refused = matches!(read, Err(ImageDirectoryError::NotOnDisk { .. }));
        // A disk that takes nothing any more does not take a note of that either.
        if is_refused && lasts == Lasts::OneCall {
            let lost = directory.join(NEW).join("core-1.img");
            std::fs::write(lost, "what the disk had before").unwrap();
            let opened = open(&Settings::default(), directory).unwrap();
            let found = name_of(opened.path());
            assert_eq!(found.as_deref(), Before::Earlier.image());
            counter.set(counter.get() + 1);
        }
    });
    assert!(refused.get() > 0);
}

/// The remains of a removal are no image, and go the next time.
#[test]
fn a_removal_goes_on_where_it_was_cut_off() {
    let removed = |directory: &Path| {
        let alone = hold_alone(directory).unwrap().unwrap();
        remove(directory, &alone)
    };
    let mut faults = 0;
    for before in [Before::Earlier, Before::Half] {
        faults += at_each_call(before, removed, |directory, told, _| {
            if told.is_ok() {
                assert!(!directory.exists(), "{:?}", super::names(directory));
                return;
            }
            if directory.exists() {
                let found = name_of(directory);
                assert!(found.is_none() || found.as_deref() == before.image());
                removed(directory).unwrap();
            }
            assert!(!directory.exists());
        });
    }
    println!("{faults} faults");
    assert!(faults > 50, "{faults}");
}
