//! The process that has the containers of a group wait for each other, and decides the outcome.

use std::thread::sleep;
use std::time::{Duration, Instant};

use stasis_engine::companions::Step;
use stasis_engine::error::kind::{Kind, State};
use stasis_group::file::NewGroup;
use stasis_group::member::{ABANDONED, Ended, GO_ON};
use stasis_host::cancel::Cancel;

use super::process::Process;
use super::progress::GroupLine;
use crate::command_error::GroupError;
use crate::through_engine::command::EngineCommand;

/// The interval of looks at their progress.
const LOOK: Duration = Duration::from_millis(10);

/// Why there is no checkpoint, or no restore.
#[derive(Debug, thiserror::Error)]
pub(super) enum Why {
    /// A container's checkpoint has failed, for its own reason.
    #[error("{0} cannot be checkpointed")]
    NotCheckpointed(String),
    /// A container's restore has failed, for its own reason.
    #[error("{0} cannot be restored")]
    NotRestored(String),
    /// They could not be locked together.
    #[error("the containers cannot be locked together: {text}")]
    Lock { text: String, kind: Kind },
    /// A step took too long.
    #[error("a step of some containers took longer than {} s (deadlines.group_s)", .0.as_secs())]
    Deadline(Duration),
    /// A process for a container could not be started.
    #[error(transparent)]
    Start(#[from] GroupError),
    /// The file that decides could not get its name.
    #[error("the group's file cannot be renamed")]
    Complete(#[source] std::io::Error),
    /// A signal asked for the end.
    #[error("a signal ended it")]
    Cancelled,
}

impl Why {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::NotCheckpointed(_) | Self::NotRestored(_) => Kind::GroupAbandoned,
            Self::Lock { kind, .. } => *kind,
            Self::Deadline(_) => Kind::NoAnswer,
            Self::Start(error) => error.kind(),
            Self::Complete(_) => Kind::ImageDirectory,
            Self::Cancelled => Kind::Cancelled,
        }
    }
}

/// The parent.
pub(super) struct Parent<'a> {
    group: &'a NewGroup,
    /// The limit for each step.
    limit: Duration,
    cancel: Cancel,
    line: GroupLine,
    /// Makes the reason for a container that fails.
    fails: fn(String) -> Why,
    /// The processes that were started, by the names of their containers.
    processes: Vec<(String, Process)>,
}

impl<'a> Parent<'a> {
    pub(super) fn new(
        group: &'a NewGroup,
        limit: Duration,
        cancel: Cancel,
        line: GroupLine,
        fails: fn(String) -> Why,
    ) -> Self {
        Self {
            group,
            limit,
            cancel,
            line,
            fails,
            processes: Vec::new(),
        }
    }

    /// Leads all through their course, or none; returns the reason for none.
    pub(super) fn carry_out(
        &mut self,
        course: impl FnOnce(&mut Self) -> Result<(), Why>,
    ) -> Option<Why> {
        let why = course(self).err();
        if why.is_some() {
            // First: a process that misses the word finds the group abandoned.
            self.group.abandon();
            self.say(ABANDONED);
            self.line.line.is_taken_back();
        }
        why
    }

    /// Starts the process of a container, and waits until it has reached this step. The next
    /// container's operation begins then: so all groups take the locks in one order.
    pub(super) fn start(
        &mut self,
        name: &str,
        command: &EngineCommand,
        until: Step,
    ) -> Result<(), Why> {
        let process = Process::start(command)?;
        self.processes.push((name.to_owned(), process));
        self.until(until)
    }

    /// Lets all go on, and waits until they have reached this step. A failure or a signal until now
    /// is noticed before any goes on.
    pub(super) fn release_until(&mut self, until: Step) -> Result<(), Why> {
        self.look()?;
        self.say(GO_ON);
        self.until(until)
    }

    /// Completes the operation of all: each has reached the last step.
    pub(super) fn decide(&mut self) -> Result<(), Why> {
        self.group.complete().map_err(Why::Complete)?;
        // No process waits for the disk any more.
        self.say(GO_ON);
        self.group.sync();
        Ok(())
    }

    fn say(&self, word: u8) {
        let processes = self.processes.iter();
        processes.for_each(|(_, process)| process.say(word));
    }

    /// Waits until all started processes have reached this step.
    fn until(&mut self, step: Step) -> Result<(), Why> {
        let deadline = Instant::now() + self.limit;
        loop {
            self.look()?;
            let mut processes = self.processes.iter();
            if processes.all(|(_, process)| process.reached() >= Some(step)) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(Why::Deadline(self.limit));
            }
            self.line.show();
            sleep(LOOK);
        }
    }

    fn look(&mut self) -> Result<(), Why> {
        if self.cancel.requested() {
            return Err(Why::Cancelled);
        }
        for (name, process) in &mut self.processes {
            // A process that cannot be waited for counts as ended.
            if process.look().is_err() || process.has_given_up() {
                return Err((self.fails)(name.clone()));
            }
        }
        Ok(())
    }

    /// Waits until all have gone on, have ended, or are as they were; returns how each of so many
    /// has ended, `None` if it was not begun. `undone` returns the state of a killed one, by its
    /// number, once the decision is carried out in its place.
    pub(super) fn wait_for_all(
        mut self,
        count: usize,
        undone: impl Fn(usize) -> State,
    ) -> Vec<Option<Ended>> {
        while !self.processes.iter().all(|(_, process)| process.is_over()) {
            for (_, process) in &mut self.processes {
                if process.look().is_err() {
                    break;
                }
            }
            self.line.show();
            sleep(LOOK);
        }
        self.line.line.clear();
        for (at, (_, process)) in self.processes.iter_mut().enumerate() {
            if process.was_killed() {
                process.is_undone(undone(at));
            }
        }
        let mut processes = self.processes.into_iter();
        let mut ended = || processes.next().map(|(_, process)| process.into_ended());
        (0..count).map(|_| ended()).collect()
    }
}
