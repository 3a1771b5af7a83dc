//! Runs actors over one directory, the real code on a real file system, in every order of their
//! steps that a plan names: each is a thread, and one of them runs at a time.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use super::super::*;
use super::{EARLIER, living, names, write};
use stasis_config::Settings;
use stasis_linux::file_system::FileSystem;
use std::fs;

thread_local! {
    static ACTOR: RefCell<Option<(Arc<Stage>, usize)>> = const { RefCell::new(None) };
}

/// When another actor goes on, and where one is killed.
#[derive(Debug, Clone, Default)]
struct Plan {
    /// After so many steps of all together, this one goes on.
    turns: Vec<(usize, usize)>,
    /// This one is killed before its step of this number.
    killed: Option<(usize, usize)>,
}

#[derive(Default)]
struct State {
    turn: usize,
    steps: usize,
    own_steps: Vec<usize>,
    ended: Vec<bool>,
    /// How often in turn all that live have had to wait.
    waits: usize,
}

struct Stage {
    plan: Plan,
    state: Mutex<State>,
    changed: Condvar,
}

/// An actor was killed.
struct Killed;

/// The next step of the actor that is this thread.
pub(crate) fn step() {
    with_actor(|stage, own| stage.step(own));
}

/// The actor has to wait for another.
pub(crate) fn pause() {
    if !with_actor(|stage, own| stage.pause(own)) {
        thread::sleep(std::time::Duration::from_millis(1));
    }
}

fn with_actor(act: impl FnOnce(&Stage, usize)) -> bool {
    let actor = ACTOR.with(|actor| actor.borrow().clone());
    let is_actor = actor.is_some();
    if let Some((stage, own)) = actor {
        act(&stage, own);
    }
    is_actor
}

impl Stage {
    fn step(&self, own: usize) {
        let mut state = self.state.lock().unwrap();
        state.waits = 0;
        state.steps += 1;
        state.own_steps[own] += 1;
        if self.plan.killed == Some((own, state.own_steps[own])) {
            drop(state);
            resume_unwind(Box::new(Killed));
        }
        let steps = state.steps;
        let turn = self.plan.turns.iter().find(|(at, _)| *at == steps);
        if let Some((_, next)) = turn.filter(|(_, next)| !state.ended[*next]) {
            state.turn = *next;
            self.changed.notify_all();
            self.wait_for_turn(state, own);
        }
    }

    fn pause(&self, own: usize) {
        let mut state = self.state.lock().unwrap();
        state.waits += 1;
        if state.waits > 2 * state.ended.len() {
            // Nobody else can go on: time passes.
            drop(state);
            thread::sleep(std::time::Duration::from_millis(1));
            state = self.state.lock().unwrap();
        }
        let all = state.ended.len();
        let next = (1..=all).map(|more| (own + more) % all);
        state.turn = next
            .into_iter()
            .find(|next| !state.ended[*next])
            .unwrap_or(own);
        self.changed.notify_all();
        self.wait_for_turn(state, own);
    }

    fn wait_for_turn(&self, state: std::sync::MutexGuard<'_, State>, own: usize) {
        drop(
            self.changed
                .wait_while(state, |state| state.turn != own)
                .unwrap(),
        );
    }

    fn end(&self, own: usize) {
        let mut state = self.state.lock().unwrap();
        state.ended[own] = true;
        state.waits = 0;
        if let Some(next) = state.ended.iter().position(|ended| !ended) {
            state.turn = next;
        }
        self.changed.notify_all();
    }
}

/// What has become of an actor, and how many steps it took.
type Ends<T> = (Vec<Option<T>>, usize);

/// Runs all actors, the first of which begins. `None`: one was killed.
fn run<T: Send>(plan: &Plan, actors: Vec<Box<dyn FnOnce() -> T + Send + '_>>) -> Ends<T> {
    let stage = Arc::new(Stage {
        plan: plan.clone(),
        state: Mutex::new(State {
            own_steps: vec![0; actors.len()],
            ended: vec![false; actors.len()],
            ..State::default()
        }),
        changed: Condvar::new(),
    });
    let ends = thread::scope(|scope| {
        let threads: Vec<_> = actors
            .into_iter()
            .enumerate()
            .map(|(own, actor)| {
                let stage = stage.clone();
                scope.spawn(move || {
                    stage.wait_for_turn(stage.state.lock().unwrap(), own);
                    ACTOR.with(|actor| *actor.borrow_mut() = Some((stage.clone(), own)));
                    let ended = catch_unwind(AssertUnwindSafe(actor));
                    stage.end(own);
                    match ended {
                        Ok(ended) => Some(ended),
                        Err(panic) if panic.is::<Killed>() => None,
                        Err(panic) => resume_unwind(panic),
                    }
                })
            })
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined
            .map(|ended| ended.unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    });
    let steps = stage.state.lock().unwrap().steps;
    (ends, steps)
}

/// What an actor has seen.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    /// Its image is committed.
    Committed(String),
    /// Another one writes or reads there.
    Busy,
    /// It has read this image.
    Read(String),
}

/// A directory, and the names of those who have come as far as their commit, in that order.
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

    /// After all: one image, and it is one that had to be there.
    fn check(&self, ends: &[Option<Seen>], plan: &Plan) {
        let context = || format!("{plan:?} {ends:?} {:?}", names(self.directory.path()));
        let Seen::Read(last) = self.read() else {
            panic!("it cannot be read: {}", context());
        };
        assert!(self.may_be_last(&last, ends), "{last} {}", context());
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

    /// The last one that was committed; or that of a writer that was killed after it had written
    /// all, which may have been finished or not.
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
        ImageDirectoryError::Busy(_) | ImageDirectoryError::Read(_)
    );
    assert!(is_busy, "{error:?}");
    Seen::Busy
}

/// What an actor does.
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
