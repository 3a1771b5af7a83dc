//! The connection of a container's operation to its group: a socket to the parent.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::stdio::{dup2_stderr, dup2_stdin};
use serde::{Deserialize, Serialize};
use stasis_engine::companions::{Companions, Step};
use stasis_engine::context::{Context, Outcome};
use stasis_engine::error::io_kind::of_io;
use stasis_engine::error::kind::{Image, Kind, State};
use stasis_engine::error::reason::Reason;
use stasis_engine::error::{Error, Failure};
use stasis_engine::operation::outcome::{Decision, SharedOutcome};
use stasis_engine::operation::timeline::Timeline;
use stasis_host::cancel::Cancel;

use crate::file::outcome_of;

/// The parent's message that all have reached the step.
pub const GO_ON: u8 = b'+';
/// Its message that there is no checkpoint.
pub const ABANDONED: u8 = b'-';
/// How often signals are checked.
const LOOK: Duration = Duration::from_millis(50);
/// How much longer a container waits than its parent does.
const GRACE: Duration = Duration::from_secs(10);

/// The phase in which a container waits for the others to reach a step.
fn phase(step: Step) -> &'static str {
    match step {
        Step::Checked => "wait for checks",
        Step::Ready => "wait for lock",
        Step::Surveyed => "wait for surveys",
        Step::Movable => "wait for what others share",
        Step::Still => "wait for gpu checkpoints",
        Step::Written => "wait for images",
        Step::Admitted => "wait for room",
        Step::Verified => "wait for files",
        Step::Back => "wait for criu restores",
        Step::Whole => "wait for gpu restores",
    }
}

/// A message of a container to the parent, in one line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Said {
    /// It has reached this step.
    Reached(Step),
    /// A signal asks it to end: the parent decides, and may have done so already.
    Withdrawn,
    /// Its operation is over.
    Ended(Ended),
}

/// The end of an operation; without values after a success.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// The error, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The kind of the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The container's state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The image is complete in spite of an error.
    image_complete: bool,
}

/// One container of a group.
#[derive(Debug)]
pub struct Member {
    outcome: SharedOutcome,
    socket: UnixStream,
    limit: Duration,
}

impl Member {
    /// The container `id` of the group for which its parent has made a file. The socket to the
    /// parent is the standard input of this process, which no child inherits from here on.
    /// # Errors
    /// The file cannot be read, or is not of this container.
    pub fn of_this_process(pending: &Path, context: &Context, id: &str) -> io::Result<Self> {
        let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        dup2_stdin(File::open("/dev/null")?)?;
        socket.set_read_timeout(Some(LOOK))?;
        let outcome = outcome_of(pending, &context.root, id)?;
        let limit = context.settings.deadlines.group() + GRACE;
        Ok(Self {
            outcome,
            socket,
            limit,
        })
    }

    /// Replaces standard error by /dev/null, since a container may inherit it.
    ///
    /// # Errors
    /// /dev/null cannot be opened.
    pub fn silent(self) -> io::Result<Self> {
        let null = OpenOptions::new().read(true).write(true).open("/dev/null");
        dup2_stderr(null?)?;
        Ok(self)
    }

    fn wait(&self, cancel: &Cancel) -> Result<(), Failure> {
        let deadline = Instant::now() + self.limit;
        let (mut withdrawn, mut ended) = (false, false);
        loop {
            match self.hear() {
                Ok(Some(GO_ON)) => return Ok(()),
                Ok(Some(ABANDONED)) if cancel.requested() => return Err(Failure::Cancelled),
                Ok(Some(ABANDONED)) => return Err(abandoned()),
                Ok(None) => {}
                Ok(Some(_)) | Err(_) => return self.without_parent(),
            }
            if cancel.requested() && !withdrawn {
                let _ = self.say(&Said::Withdrawn);
                withdrawn = true;
            }
            if Instant::now() > deadline && !ended {
                // A parent without a decision by now is killed, which closes the socket.
                self.outcome.end_parent().map_err(unknown)?;
                ended = true;
            }
        }
    }

    /// Reads a message of the parent; `None` if there is none yet.
    fn hear(&self) -> io::Result<Option<u8>> {
        let mut word = [0];
        match (&self.socket).read(&mut word) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(Some(word[0])),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Reads the decision of a parent that has ended: it may have decided before.
    fn without_parent(&self) -> Result<(), Failure> {
        let decision = self.outcome.wait_for_decision(GRACE);
        match decision.map_err(unknown)? {
            Decision::Complete => Ok(()),
            Decision::Abandoned => Err(Failure::CutOff {
                verb: "command for its group",
            }),
        }
    }

    /// Carries out its operation, and reports to the parent how it has ended.
    ///
    /// # Errors
    /// The error of the operation.
    pub fn carry_out(
        &self,
        operation: impl FnOnce(&dyn Companions) -> Result<Outcome, Error>,
    ) -> Result<Outcome, Error> {
        let outcome = operation(self);
        self.say_end(outcome.as_ref().err());
        outcome
    }

    fn say_end(&self, error: Option<&Error>) {
        let ended = error.map_or_else(Ended::default, Ended::of);
        // A parent that has ended does not need it.
        let _ = self.say(&Said::Ended(ended));
    }

    fn say(&self, said: &Said) -> io::Result<()> {
        let mut line = serde_json::to_vec(said)?;
        line.push(b'\n');
        (&self.socket).write_all(&line)
    }
}

impl Companions for Member {
    fn outcome(&self) -> Option<&SharedOutcome> {
        Some(&self.outcome)
    }

    /// Fails if a container has failed, by [`Failure::Cancelled`] or, if the parent was killed, by
    /// [`Failure::CutOff`].
    fn meet(
        &self,
        step: Step,
        cancel: &Cancel,
        timeline: &mut Timeline<'_>,
    ) -> Result<(), Failure> {
        // `wait` notices a parent that has ended.
        let _ = self.say(&Said::Reached(step));
        timeline.time(phase(step), || self.wait(cancel))
    }
}

/// Why a container does not go on with its group.
#[derive(Debug, thiserror::Error)]
enum NotTogether {
    #[error("another container of its group has failed")]
    Abandoned,
    #[error("what has become of its group cannot be read")]
    Unknown(#[source] io::Error),
}

fn abandoned() -> Failure {
    Reason::new(Kind::GroupAbandoned, NotTogether::Abandoned).into()
}

fn unknown(error: io::Error) -> Failure {
    let kind = of_io(&error, Kind::ImageDirectory);
    Reason::new(kind, NotTogether::Unknown(error)).into()
}

impl Ended {
    fn of(error: &Error) -> Self {
        let diagnosis = error.diagnosis();
        Self {
            error: Some(error.to_string()),
            kind: Some(diagnosis.kind.to_string()),
            state: Some(diagnosis.state.to_string()),
            image_complete: diagnosis.image == Image::Complete,
        }
    }

    /// The same, once another process has carried the decision out and left the container so.
    pub(crate) fn undone(self, now: State) -> Self {
        Self {
            state: Some(now.to_string()),
            ..self
        }
    }

    /// The end of a process of ours that has reported nothing.
    pub fn unknown(error: String, kind: &str) -> Self {
        Self {
            error: Some(error),
            kind: Some(kind.to_owned()),
            state: Some(State::Unknown.to_string()),
            image_complete: false,
        }
    }
}
