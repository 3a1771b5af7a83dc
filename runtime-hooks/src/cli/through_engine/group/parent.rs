//! The process that has the containers of a group wait for each other, and decides.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use stasis_config::Settings;

use super::lock;
use super::members::Member;
use super::process::Process;
use crate::checkpoint::member::{ABANDONED, Ended, GO_ON, Step};
use crate::cli::command_error::GroupError;
use crate::error::kind::{Kind, State};
use crate::host::cancel::Cancel;
use crate::operation::group::NewGroup;
use crate::recovery::begin_within;

/// How often it is looked how far they are.
const LOOK: Duration = Duration::from_millis(10);

/// Why there is no checkpoint.
#[derive(Debug, thiserror::Error)]
pub(super) enum Why {
    /// A container says why.
    #[error("{0} cannot be checkpointed")]
    Member(String),
    /// They could not be locked together.
    #[error("they cannot be locked together: {text}")]
    Lock { text: String, kind: Kind },
    /// A step took too long.
    #[error("not all had come so far within {} s (deadlines.group_s)", .0.as_secs())]
    Deadline(Duration),
    /// A process for a container could not be started.
    #[error(transparent)]
    Start(#[from] GroupError),
    /// The file that decides could not get its name.
    #[error("the group's file cannot be renamed")]
    Complete(#[source] std::io::Error),
    /// A signal asked for that.
    #[error("a signal asked for it to end")]
    Cancelled,
}

impl Why {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Member(_) => Kind::GroupAbandoned,
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
    settings: &'a Settings,
    members: &'a [Member],
    group: &'a NewGroup,
    config: Option<&'a Path>,
    cancel: Cancel,
    /// Of the first of the members, in their order.
    processes: Vec<Process>,
}

impl<'a> Parent<'a> {
    pub(super) fn new(
        settings: &'a Settings,
        members: &'a [Member],
        group: &'a NewGroup,
        config: Option<&'a Path>,
        cancel: Cancel,
    ) -> Self {
        Self {
            settings,
            members,
            group,
            config,
            cancel,
            processes: Vec::new(),
        }
    }

    /// Has all checkpointed, or none; why there is none.
    pub(super) fn carry_out(&mut self) -> Option<Why> {
        let why = self.go_through().err();
        if why.is_some() {
            // First: who does not hear of it finds it out.
            self.group.abandon();
            self.say(ABANDONED);
        }
        why
    }

    fn go_through(&mut self) -> Result<(), Why> {
        for member in self.members {
            let pending = self.group.pending();
            let process = Process::start(self.settings, member, pending, self.config)?;
            self.processes.push(process);
            // The next one's operation begins then: so the locks are taken in one order by all.
            self.until(Step::Checked)?;
        }
        self.say(GO_ON);
        self.until(Step::Ready)?;
        lock::lock_all(self.settings, self.members)
            .map_err(|(text, kind)| Why::Lock { text, kind })?;
        for step in [Step::Still, Step::Written] {
            self.go_on()?;
            self.until(step)?;
        }
        self.group.complete().map_err(Why::Complete)?;
        // Nobody waits for a disk any more.
        self.say(GO_ON);
        self.group.sync();
        Ok(())
    }

    /// What was begun meanwhile is to be known before the others go on.
    fn go_on(&mut self) -> Result<(), Why> {
        self.look()?;
        self.say(GO_ON);
        Ok(())
    }

    fn say(&self, word: u8) {
        self.processes.iter().for_each(|process| process.say(word));
    }

    /// Waits until all that were started have come so far.
    fn until(&mut self, step: Step) -> Result<(), Why> {
        let limit = self.settings.deadlines.group();
        let deadline = Instant::now() + limit;
        loop {
            self.look()?;
            let has_come = |process: &Process| process.reached() >= Some(step);
            if self.processes.iter().all(has_come) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(Why::Deadline(limit));
            }
            sleep(LOOK);
        }
    }

    fn look(&mut self) -> Result<(), Why> {
        if self.cancel.requested() {
            return Err(Why::Cancelled);
        }
        for (member, process) in self.members.iter().zip(&mut self.processes) {
            // What cannot be waited for is over.
            if process.look().is_err() || process.has_given_up() {
                return Err(Why::Member(member.name.clone()));
            }
        }
        Ok(())
    }

    /// Waits until all have gone on, have ended, or are as they were; how each has ended. `None` of
    /// those that were not begun.
    pub(super) fn wait_for_all(mut self) -> Vec<Option<Ended>> {
        while !self.processes.iter().all(Process::is_over) {
            for process in &mut self.processes {
                if process.look().is_err() {
                    break;
                }
            }
            sleep(LOOK);
        }
        for (member, process) in self.members.iter().zip(&mut self.processes) {
            if process.was_killed() {
                process.is_undone(undone(self.settings, member));
            }
        }
        let mut processes = self.processes.into_iter();
        let ended = self.members.iter();
        ended
            .map(|_| processes.next().map(Process::into_ended))
            .collect()
    }
}

/// Waits until the keeper of an operation that was killed has carried out what was decided, or does
/// so if it was killed, too; how the container is then.
fn undone(settings: &Settings, member: &Member) -> State {
    let located = &member.located;
    let context = located.context(settings.clone(), Cancel::not_needed());
    let limit = settings.deadlines.stalled();
    match begin_within(limit, &context, located.container.id()) {
        Err(_) => State::Unknown,
        Ok(_) if located.container.init().is_gone() => State::Ended,
        Ok(_) => State::Unharmed,
    }
}
