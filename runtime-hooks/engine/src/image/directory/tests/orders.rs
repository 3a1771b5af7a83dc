//! Writers and readers of one directory, in every order of their steps.

use std::fs;
use std::sync::Mutex;
use std::thread::sleep;
use std::time::{Duration, Instant};

use stasis_config::Settings;
use stasis_host::directory_lock::{Locked, lock_directory};
use stasis_host::file_lock::Sharing;
use stasis_linux::file_system::FileSystem;

use super::super::*;
use super::model::{Plan, run, step};
use super::{EARLIER, living, names, write};

/// The observation of an actor.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    /// Its image is committed.
    Committed(String),
    /// Another one writes or reads there.
    Busy,
    /// It has read this image.
    Read(String),
}

/// A directory, and the names of the writers that have reached their commit, in that order.
struct Scene {
    directory: tempfile::TempDir,
    order: Mutex<Vec<String>>,
}

const FILES: [&str; 3] = ["core-1.img", "pages-1.img", INVENTORY];

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        write(directory.path(), &EARLIER);
        fs::write(directory.path().join("pages-1.img"), "earlier").unwrap();
        Self {
            directory,
            order: Mutex::default(),
        }
    }

    fn write(&self, name: &str) -> Seen {
        let image = match NewImage::begin(&Settings::default(), self.directory.path(), None) {
            Ok(image) => image,
            Err(error) => return busy(&error),
        };
        for file in FILES {
            step();
            if file == INVENTORY {
                self.order.lock().unwrap().push(name.to_owned());
            }
            fs::write(image.path().join(file), name).unwrap();
        }
        let committed = image.commit(None, |_: &FileSystem| {
            step();
            Ok(())
        });
        let _ = committed.unwrap();
        Seen::Committed(name.to_owned())
    }

    fn read(&self) -> Seen {
        let opened = match open(&Settings::default(), self.directory.path()) {
            Ok(opened) => opened,
            Err(error) => return busy(&error),
        };
        let mut found: Option<String> = None;
        for file in FILES {
            step();
            let text = fs::read_to_string(opened.path().join(file));
            let text = text.unwrap_or_else(|error| panic!("{file}: {error}"));
            assert_eq!(*found.get_or_insert_with(|| text.clone()), text, "{file}");
        }
        Seen::Read(found.unwrap())
    }

    /// Checks the end: one image, and it is one that had to be there.
    fn check(&self, ends: &[Option<Seen>], plan: &Plan) {
        let context = || format!("{plan:?} {ends:?} {:?}", names(self.directory.path()));
        // A restore without our part gets all of an image, or none.
        if has_inventory(self.directory.path()) && exists(&self.directory.path().join(MOVING)) {
            let left = names(&self.directory.path().join(MOVING));
            assert!(left.is_empty(), "{left:?} {}", context());
        }
        self.until_unlocked();
        let Seen::Read(last) = self.read() else {
            panic!("it cannot be read: {}", context());
        };
        assert!(self.may_be_last(&last, ends), "{last} {}", context());
        self.until_unlocked();
        let image = NewImage::begin(&Settings::default(), self.directory.path(), None);
        let image = image.unwrap_or_else(|error| panic!("{error} {}", context()));
        assert_eq!(
            names(image.path()),
            [BOOT.to_owned()].into(),
            "{}",
            context()
        );
        image.give_up(&living());
        let mut left = names(self.directory.path());
        for file in FILES {
            assert!(left.remove(file), "{file} {}", context());
        }
        left.retain(|name| last != "earlier" || !EARLIER.iter().any(|(file, _)| file == name));
        assert!(left.is_empty(), "{left:?} {}", context());
    }

    /// Waits for children of other tests: from their fork to their exec they have our locks.
    fn until_unlocked(&self) {
        let staging = self.directory.path().join(NEW);
        let late = Instant::now() + Duration::from_secs(60);
        while let Locked::Held = lock_directory(&staging, Sharing::Shared).unwrap() {
            assert!(Instant::now() < late, "its lock is held");
            sleep(Duration::from_millis(1));
        }
    }

    /// Whether this is the last image that was committed; or one of a writer that was killed after
    /// it had written all, which may have been finished or not.
    fn may_be_last(&self, last: &str, ends: &[Option<Seen>]) -> bool {
        let order = self.order.lock().unwrap();
        for name in order.iter().rev() {
            let is_committed = ends.contains(&Some(Seen::Committed(name.clone())));
            if last == name || is_committed {
                return last == name;
            }
        }
        last == "earlier"
    }
}

fn busy(error: &ImageDirectoryError) -> Seen {
    let is_busy = matches!(
        error,
        ImageDirectoryError::Busy(_)
            | ImageDirectoryError::Read(_)
            | ImageDirectoryError::Removed(_)
    );
    assert!(is_busy, "{error:?}");
    Seen::Busy
}

/// The role of an actor.
#[derive(Debug, Clone, Copy)]
enum Role {
    Writer(&'static str),
    Reader,
}

fn play(roles: &[Role], plan: &Plan) -> usize {
    let scene = Scene::new();
    let actors = roles.iter().map(|role| {
        let scene = &scene;
        let role = *role;
        let actor: Box<dyn FnOnce() -> Seen + Send> = Box::new(move || match role {
            Role::Writer(name) => scene.write(name),
            Role::Reader => scene.read(),
        });
        actor
    });
    let (ends, steps) = run(plan, actors.collect());
    scene.check(&ends, plan);
    steps
}

const WRITER: Role = Role::Writer("second");
const PAIRS: [[Role; 2]; 3] = [
    [Role::Writer("first"), WRITER],
    [Role::Writer("first"), Role::Reader],
    [Role::Reader, WRITER],
];

#[test]
fn two_actors_in_every_order_of_their_steps_and_killed_at_each() {
    let mut schedules = 0;
    for pair in PAIRS {
        let alone = play(&pair, &Plan::default());
        for first in 1..=alone {
            for back in first + 1..=alone + 1 {
                let turns = vec![(first, 1), (back, 0)];
                play(
                    &pair,
                    &Plan {
                        turns,
                        killed: None,
                    },
                );
                schedules += 1;
            }
            for own in [0, 1] {
                for at in 1..=alone {
                    let turns = vec![(first, 1)];
                    let killed = Some((own, at));
                    play(&pair, &Plan { turns, killed });
                    schedules += 1;
                }
            }
        }
    }
    println!("{schedules} schedules");
    assert!(schedules > 3000, "{schedules}");
}

#[test]
fn four_actors_with_three_turns_and_one_killed() {
    let four = [Role::Writer("first"), Role::Reader, WRITER, Role::Reader];
    let alone = play(&four, &Plan::default());
    let mut random = fastrand::Rng::with_seed(34);
    for _ in 0..3000 {
        let mut turns: Vec<_> = (0..3)
            .map(|_| (random.usize(1..=alone), random.usize(0..4)))
            .collect();
        turns.sort_unstable();
        let killed = random
            .bool()
            .then(|| (random.usize(0..4), random.usize(1..=alone / 2)));
        play(&four, &Plan { turns, killed });
    }
}
