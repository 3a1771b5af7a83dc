//! The connection of a container's operation to its group: a socket to the parent.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::stdio::{dup2_stderr, dup2_stdin};
use serde::{Deserialize, Serialize};
use stasis_host::cancel::Cancel;
use stasis_linux::cgroup::FreezerState;

use crate::context::Context;
use crate::error::kind::{Image, State};
use crate::error::{Error, Failure};
use crate::operation::group::{Decision, Group};
use crate::operation::timeline::Timeline;
use crate::operation::undo::Begun;
use crate::request::AfterDump;

/// The parent's message that all have reached the step.
pub const GO_ON: u8 = b'+';
/// Its message that there is no checkpoint.
pub const ABANDONED: u8 = b'-';
/// How often signals are checked.
const LOOK: Duration = Duration::from_millis(50);
/// How much longer a container waits than its parent does.
const GRACE: Duration = Duration::from_secs(10);

/// Returns the record for undoing a checkpoint of a container that was found in this state, alone
/// or in a group, with this image.
pub(crate) fn begun(found: FreezerState, image: Option<PathBuf>, member: Option<&Member>) -> Begun {
    let group = member.map(Member::group).cloned();
    Begun::Checkpoint {
        found,
        image,
        group,
    }
}

/// The steps of a checkpoint or a restore. All containers enter each step together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Nothing is in the way, and nothing is changed.
    Checked,
    /// Its program was notified, and there is a place for its GPU contents.
    Ready,
    /// Its GPU contents are in host memory, and it is frozen.
    Still,
    /// Its image is on disk.
    Written,
    /// There is room for the restore, beside the others, and nothing is changed.
    Admitted,
    /// The files of its image are verified.
    Verified,
    /// CRIU has brought its processes back, and they are frozen.
    Back,
    /// They have their GPUs, and are locked and frozen.
    Whole,
}

impl Step {
    fn phase(self) -> &'static str {
        match self {
            Self::Checked => "wait for checks",
            Self::Ready => "wait for lock",
            Self::Still => "wait for gpu checkpoints",
            Self::Written => "wait for images",
            Self::Admitted => "wait for room",
            Self::Verified => "wait for files",
            Self::Back => "wait for criu restores",
            Self::Whole => "wait for gpu restores",
        }
    }
}

/// A message of a container to the parent, in one line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Said {
    /// It has reached this step.
    Reached(Step),
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
    pub(crate) image_complete: bool,
}

/// One container of a group.
#[derive(Debug)]
pub struct Member {
    group: Group,
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
        let group = Group::of_container(pending, &context.root, id)?;
        let limit = context.settings.deadlines.group() + GRACE;
        Ok(Self {
            group,
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

    pub(crate) fn group(&self) -> &Group {
        &self.group
    }

    /// Whether the container resumes once all images are complete.
    pub(crate) fn after(&self) -> AfterDump {
        self.group.after()
    }

    /// Waits until all others have reached this step as well. After the last step the checkpoint,
    /// or restore, of all is complete.
    ///
    /// # Errors
    /// [`Failure::GroupAbandoned`], [`Failure::Cancelled`] or, if the parent was killed,
    /// [`Failure::CutOff`]: there is no checkpoint. [`Failure::GroupUnknown`].
    pub(crate) fn meet(
        &self,
        step: Step,
        cancel: &Cancel,
        timeline: &mut Timeline<'_>,
    ) -> Result<(), Failure> {
        // `wait` notices a parent that has ended.
        let _ = self.say(&Said::Reached(step));
        timeline.time(step.phase(), || self.wait(cancel))
    }

    fn wait(&self, cancel: &Cancel) -> Result<(), Failure> {
        let deadline = Instant::now() + self.limit;
        let (mut withdrawn, mut ended) = (false, false);
        loop {
            match self.hear() {
                Ok(Some(GO_ON)) => return Ok(()),
                Ok(Some(ABANDONED)) if withdrawn => return Err(Failure::Cancelled),
                Ok(Some(ABANDONED)) => return Err(Failure::GroupAbandoned),
                Ok(None) => {}
                Ok(Some(_)) | Err(_) => return self.without_parent(),
            }
            if cancel.requested() && !withdrawn {
                // The parent decides, and may have done so already.
                let _ = self.socket.shutdown(Shutdown::Write);
                withdrawn = true;
            }
            if Instant::now() > deadline && !ended {
                // A parent without a decision by now is killed, which closes the socket.
                self.group.end_parent().map_err(Failure::GroupUnknown)?;
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
        let decision = self.group.wait_for_decision(GRACE);
        match decision.map_err(Failure::GroupUnknown)? {
            Decision::Complete => Ok(()),
            Decision::Abandoned => Err(Failure::CutOff {
                verb: "command for its group",
            }),
        }
    }

    /// Reports to the parent how the operation has ended.
    pub(crate) fn say_end(&self, error: Option<&Error>) {
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
