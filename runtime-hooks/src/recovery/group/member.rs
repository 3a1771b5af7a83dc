//! What ties the operation on a container to those of its group: a socket to their parent.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::stdio::{dup2_stderr, dup2_stdin};
use serde::{Deserialize, Serialize};
use stasis_linux::cgroup::FreezerState;

use crate::context::Context;
use crate::error::kind::{Image, State};
use crate::error::{Error, Failure};
use crate::host::cancel::Cancel;
use crate::operation::group::{Decision, Group};
use crate::operation::timeline::Timeline;
use crate::operation::undo::Begun;
use crate::request::AfterDump;

/// The parent's word that all have come so far.
pub(crate) const GO_ON: u8 = b'+';
/// Its word that there is no checkpoint.
pub(crate) const ABANDONED: u8 = b'-';
/// How often it is looked whether a signal has come.
const LOOK: Duration = Duration::from_millis(50);
/// How much longer a container waits than its parent does.
const GRACE: Duration = Duration::from_secs(10);

/// What is to be undone of a checkpoint of a container that was found so, alone or in a group, with
/// this image.
pub(crate) fn begun(found: FreezerState, image: Option<PathBuf>, member: Option<&Member>) -> Begun {
    let group = member.map(Member::group).cloned();
    Begun::Checkpoint {
        found,
        image,
        group,
    }
}

/// How far a checkpoint or a restore has come. Each step is entered by all containers together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Step {
    /// Nothing is in the way, and nothing is changed.
    Checked,
    /// Its program is told, and there is a place for its GPU contents.
    Ready,
    /// Its GPU contents are in host memory, and it is frozen.
    Still,
    /// Its image is on disk.
    Written,
    /// There is room for what is restored, beside the others, and nothing is changed.
    Admitted,
    /// The files of its image are what they were.
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

/// What a container tells the parent, in one line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Said {
    /// It has come so far.
    Reached(Step),
    /// Its operation is over.
    Ended(Ended),
}

/// How it has ended; nothing is said of what has succeeded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ended {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    /// The container's state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<String>,
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
    /// The container `id` of the group that its parent has made a file for. The socket to it is the
    /// standard input of this process, which nobody inherits from here on.
    ///
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

    /// The same, with a standard error that a container may get: nobody reads it.
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

    /// What becomes of the container once all images are complete.
    pub(crate) fn after(&self) -> AfterDump {
        self.group.after()
    }

    /// Waits until all others have come so far as well. Behind the last step the checkpoint, or
    /// restore, of all is complete.
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
        // A parent that has ended is met below.
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
                // Whatever it still does for this container comes to nothing.
                self.group.end_parent().map_err(Failure::GroupUnknown)?;
                ended = true;
            }
        }
    }

    /// What the parent says; `None` if it has said nothing yet.
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

    /// It may have decided before it ended.
    fn without_parent(&self) -> Result<(), Failure> {
        let decision = self.group.wait_for_decision(GRACE);
        match decision.map_err(Failure::GroupUnknown)? {
            Decision::Complete => Ok(()),
            Decision::Abandoned => Err(Failure::CutOff {
                verb: "command for its group",
            }),
        }
    }

    /// Tells the parent how the operation has ended.
    pub(crate) fn say_end(&self, error: Option<&Error>) {
        let ended = error.map_or_else(Ended::default, Ended::of);
        // One that has ended does not need it.
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

    /// Of a process of ours that has said nothing.
    pub(crate) fn unknown(error: String, kind: &str) -> Self {
        Self {
            error: Some(error),
            kind: Some(kind.to_owned()),
            state: Some(State::Unknown.to_string()),
            image_complete: false,
        }
    }
}
