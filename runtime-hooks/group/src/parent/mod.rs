//! The process that has the containers of a group wait for each other, and decides the outcome.

mod lock;
mod process;

use std::fmt::Debug;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use stasis_engine::companions::Step;
use stasis_engine::context::Context;
use stasis_engine::error::kind::{Kind, State};
use stasis_engine::recovery::begin_within;
use stasis_host::cancel::Cancel;

use self::lock::lock_all;
use self::process::Process;
use crate::file::NewGroup;
use crate::member::{ABANDONED, Ended, GO_ON};

/// The interval of looks at their progress.
const LOOK: Duration = Duration::from_millis(10);

/// A container, and the command of its operation.
#[derive(Debug)]
pub struct Child {
    /// The container's name for people.
    pub name: String,
    /// The command, a `stasis-runtime --stasis-group FILE`.
    pub command: Command,
    /// The context in which the container is found.
    pub context: Context,
    /// The container's id.
    pub container: String,
}

/// Shows people how far the operations are.
pub trait Watch: Debug {
    /// Shows it, at each look at them.
    fn show(&mut self);
    /// They are undone from now on.
    fn is_taken_back(&mut self);
    /// All have ended.
    fn clear(&mut self);
}

/// The operations of a group.
#[derive(Debug)]
pub struct Operations<'a> {
    /// The group, whose file decides.
    pub group: &'a NewGroup,
    /// Its containers, in the order in which all groups take their locks.
    pub children: Vec<Child>,
    /// The limit for each step.
    pub limit: Duration,
    /// Whether a signal has asked for the end.
    pub cancel: Cancel,
    /// Who shows people how far they are.
    pub watch: &'a mut dyn Watch,
}

/// Why there is no checkpoint, or no restore.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Why {
    /// A container's checkpoint has failed, for its own reason.
    #[error("{0} cannot be checkpointed")]
    NotCheckpointed(String),
    /// A container's restore has failed, for its own reason.
    #[error("{0} cannot be restored")]
    NotRestored(String),
    #[error("the containers cannot be locked together: {text}")]
    Lock { text: String, kind: Kind },
    #[error("a step of some containers took longer than {} s (deadlines.group_s)", .0.as_secs())]
    Deadline(Duration),
    #[error("the process for {container} cannot be started")]
    Start {
        container: String,
        source: std::io::Error,
    },
    /// The file that decides could not get its name.
    #[error("the group's file cannot be renamed")]
    Complete(#[source] std::io::Error),
    #[error("a signal ended it")]
    Cancelled,
}

impl Why {
    /// The kind of the error, for scripts.
    pub fn kind(&self) -> Kind {
        match self {
            Self::NotCheckpointed(_) | Self::NotRestored(_) => Kind::GroupAbandoned,
            Self::Lock { kind, .. } => *kind,
            Self::Deadline(_) => Kind::NoAnswer,
            Self::Start { .. } => Kind::LowLevelRuntime,
            Self::Complete(_) => Kind::ImageDirectory,
            Self::Cancelled => Kind::Cancelled,
        }
    }
}

/// How the operations have ended.
#[derive(Debug)]
pub struct EndOfAll {
    /// Why there is no checkpoint, or no restore; `None` if that of all is complete.
    pub why: Option<Why>,
    /// The end of each, in the order of the children; as after a success if it was not begun.
    pub each: Vec<Ended>,
}

/// Checkpoints the containers, or none of them.
pub fn checkpoint(operations: Operations<'_>) -> EndOfAll {
    Parent::new(operations, Why::NotCheckpointed).carry_out(|parent| {
        parent.start_all_until(Step::Checked)?;
        parent.release_until(Step::Ready)?;
        lock_all(&parent.operations.children)?;
        for step in [Step::Surveyed, Step::Movable, Step::Still, Step::Written] {
            parent.release_until(step)?;
        }
        parent.decide()
    })
}

/// Restores the containers, or none of them.
pub fn restore(operations: Operations<'_>) -> EndOfAll {
    Parent::new(operations, Why::NotRestored).carry_out(|parent| {
        parent.start_all_until(Step::Admitted)?;
        for step in [Step::Verified, Step::Back, Step::Whole] {
            parent.release_until(step)?;
        }
        parent.decide()
    })
}

struct Parent<'a> {
    operations: Operations<'a>,
    /// Makes the reason for a container that fails.
    fails: fn(String) -> Why,
    /// The processes that were started, in the order of the children.
    processes: Vec<Process>,
}

impl<'a> Parent<'a> {
    fn new(operations: Operations<'a>, fails: fn(String) -> Why) -> Self {
        Self {
            operations,
            fails,
            processes: Vec::new(),
        }
    }

    /// Leads all through their course, or none.
    fn carry_out(mut self, course: impl FnOnce(&mut Self) -> Result<(), Why>) -> EndOfAll {
        let why = course(&mut self).err();
        if why.is_some() {
            // First: a process that misses the word finds the group abandoned.
            self.operations.group.abandon();
            self.say(ABANDONED);
            self.operations.watch.is_taken_back();
        }
        EndOfAll {
            why,
            each: self.wait_for_all(),
        }
    }

    /// Starts the process of each container, and waits until it has reached this step before that
    /// of the next one: so all groups take the locks in one order.
    fn start_all_until(&mut self, step: Step) -> Result<(), Why> {
        for at in 0..self.operations.children.len() {
            let child = &mut self.operations.children[at];
            let process = Process::start(&child.name, &mut child.command)?;
            self.processes.push(process);
            self.until(step)?;
        }
        Ok(())
    }

    /// Lets all go on, and waits until they have reached this step. A failure or a signal until now
    /// is noticed before any goes on.
    fn release_until(&mut self, step: Step) -> Result<(), Why> {
        self.look()?;
        self.say(GO_ON);
        self.until(step)
    }

    /// Completes the operation of all: each has reached the last step.
    fn decide(&mut self) -> Result<(), Why> {
        self.operations.group.complete().map_err(Why::Complete)?;
        // No process waits for the disk any more.
        self.say(GO_ON);
        self.operations.group.sync();
        Ok(())
    }

    fn say(&self, word: u8) {
        self.processes.iter().for_each(|process| process.say(word));
    }

    /// Waits until all started processes have reached this step.
    fn until(&mut self, step: Step) -> Result<(), Why> {
        let limit = self.operations.limit;
        let deadline = Instant::now() + limit;
        loop {
            self.look()?;
            let mut processes = self.processes.iter();
            if processes.all(|process| process.reached() >= Some(step)) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(Why::Deadline(limit));
            }
            self.operations.watch.show();
            sleep(LOOK);
        }
    }

    fn look(&mut self) -> Result<(), Why> {
        if self.operations.cancel.requested() {
            return Err(Why::Cancelled);
        }
        for (child, process) in self.operations.children.iter().zip(&mut self.processes) {
            // A process that cannot be waited for counts as ended.
            if process.look().is_err() || process.has_given_up() {
                return Err((self.fails)(child.name.clone()));
            }
        }
        Ok(())
    }

    /// Waits until all have gone on, have ended, or are as they were; returns how each has ended.
    fn wait_for_all(mut self) -> Vec<Ended> {
        while !self.processes.iter().all(Process::is_over) {
            for process in &mut self.processes {
                if process.look().is_err() {
                    break;
                }
            }
            self.operations.watch.show();
            sleep(LOOK);
        }
        self.operations.watch.clear();
        let mut processes = self.processes.into_iter();
        let end_of = |child: &Child| match processes.next() {
            Some(process) if process.was_killed() => process.into_ended().undone(undone(child)),
            Some(process) => process.into_ended(),
            None => Ended::default(),
        };
        self.operations.children.iter().map(end_of).collect()
    }
}

/// Waits until the decision is carried out for a killed operation by its keeper, or by this process
/// if the keeper was killed, too; returns the container's state.
fn undone(child: &Child) -> State {
    let (context, id) = (&child.context, &child.container);
    let limit = context.settings.deadlines.stalled();
    match (begin_within(limit, context, id), context.container(id)) {
        (Ok(_), Ok(Some(container))) if !container.init().is_gone() => State::Unharmed,
        (Ok(_), Ok(_)) => State::Ended,
        _ => State::Unknown,
    }
}
