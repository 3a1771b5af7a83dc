//! Runs actors over one directory, the real code on a real file system, in every order of their
//! steps that a plan names: each is a thread, and one of them runs at a time.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

thread_local! {
    static ACTOR: RefCell<Option<(Arc<Stage>, usize)>> = const { RefCell::new(None) };
}

/// When another actor goes on, and where one is killed.
#[derive(Debug, Clone, Default)]
pub(super) struct Plan {
    /// After this many steps of all together, this one goes on.
    pub(super) turns: Vec<(usize, usize)>,
    /// This one is killed before its step of this number.
    pub(super) killed: Option<(usize, usize)>,
}

#[derive(Default)]
struct State {
    turn: usize,
    steps: usize,
    own_steps: Vec<usize>,
    ended: Vec<bool>,
    /// How often in a row the living actors have had to wait.
    waits: usize,
}

struct Stage {
    plan: Plan,
    state: Mutex<State>,
    changed: Condvar,
}

/// An actor was killed.
struct Killed;

/// Makes the next step of the actor that is this thread.
pub(crate) fn step() {
    with_actor(|stage, own| stage.step(own));
}

/// Has the actor wait for another.
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
            // No other actor can go on: time passes.
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

/// The results of the actors, and the number of their steps.
pub(super) type Ends<T> = (Vec<Option<T>>, usize);

/// Runs all actors, beginning with the first. `None`: the actor was killed.
pub(super) fn run<T: Send>(
    plan: &Plan,
    actors: Vec<Box<dyn FnOnce() -> T + Send + '_>>,
) -> Ends<T> {
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
