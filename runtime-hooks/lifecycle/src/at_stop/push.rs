//! The process that pushes the image of a container that is stopped to the registry of its key.
//!
//! It announces the image there before the checkpoint can end the container, so that no container
//! resumes from an earlier one elsewhere, and takes that back if no image is made. It lives on when
//! the process that stops the container has ended or was killed; if it is killed itself, the next
//! one knows of its remains (`stopped/to_push.rs`).

use std::io::{self, PipeWriter, Write};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stasis_host::respawn::{self, NotBegun};

use crate::stopped::push_again::PushAgain;
use crate::stopped::tag_of;
use crate::stopped::to_push::ToPush;
use stasis_engine::operation::timeline::Timeline;

/// The first argument of such a process.
const VERB: &str = "stasis-push";
/// How long a registry that does not answer may delay a checkpoint: most of a grace period of 30 s
/// is left.
pub const ANNOUNCED_WITHIN: Duration = Duration::from_secs(4);
/// The process bounds itself, but may have been killed.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The job of the process. It first reports whether the image is announced, so that containers that
/// begin with the latest image of the key wait, or why not.
#[derive(Debug, Serialize, Deserialize)]
pub struct Push {
    /// The settings.
    pub how: PushAgain,
    /// The image, whose directory is filled meanwhile.
    pub to_push: ToPush,
}

/// The second message to the process. Without one it finds out itself what became of the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Told {
    /// The image is complete.
    Complete,
    /// There is none.
    NoImage,
}

impl Push {
    /// The job of this process, if it was started for one.
    #[must_use]
    pub fn of_this_process() -> Option<Result<Self, NotBegun>> {
        respawn::transfer_of(VERB, c"stasis-push")
    }

    /// The image's directory.
    pub fn image(&self) -> PathBuf {
        self.to_push.image()
    }

    /// The repository of its key.
    pub fn repository(&self) -> String {
        format!(
            "{}/{}",
            self.how.settings.restore.registry, self.to_push.key
        )
    }

    /// The reference of the image in the registry.
    pub fn reference(&self) -> String {
        format!("{}:{}", self.repository(), tag_of(&self.image()))
    }
}

/// The running process.
#[derive(Debug)]
pub(super) struct Pushing(PipeWriter);

impl Pushing {
    /// Starts the process, and has it announce the image. Notes any failure.
    pub(super) fn announced(push: &Push, timeline: &mut Timeline<'_>) -> Option<Self> {
        if let Err(error) = push.to_push.note() {
            timeline.note(format!(
                "it cannot be noted that the image is to be pushed: {error}; if the process that \
                 pushes it is killed, nobody does so later"
            ));
        }
        match timeline.time("announce", || Self::start(push)) {
            Ok((pushing, Ok(()))) => Some(pushing),
            Ok((pushing, Err(why))) => {
                timeline.note(format!(
                    "the registry does not know that an image is being made: {why}; a container \
                     that is created elsewhere meanwhile begins with an earlier one"
                ));
                Some(pushing)
            }
            Err(error) => {
                timeline.note(format!(
                    "the image is not pushed, since no process can be started for that: {error}"
                ));
                None
            }
        }
    }

    /// Starts the process, and waits a moment until it has announced the image; returns also the
    /// reason if it has not.
    fn start(push: &Push) -> io::Result<(Self, Result<(), String>)> {
        let (_, input, said) = respawn::start_talking_transfer(VERB, push)?;
        let line = said.recv_timeout(ANSWER_WITHIN).unwrap_or_default();
        let announced = serde_json::from_str(&line);
        let no_answer = |_| Err("the process that pushes does not answer".to_owned());
        Ok((Self(input), announced.unwrap_or_else(no_answer)))
    }

    /// Sends the process the outcome. It goes on by itself then.
    pub(super) fn tell(mut self, told: Told) -> io::Result<()> {
        self.0.write_all(&serde_json::to_vec(&told)?)?;
        self.0.write_all(b"\n")
    }
}
