//! How an operation ended, and what its caller then knows of the container.

use anyhow::{Result, bail, ensure};

use crate::mishap::Mishap;

/// What a failed operation says of a container that goes on.
const GOES_ON: [&str; 5] = [
    "runs on as before",
    "is paused as before",
    "runs on with its GPU",
    "nothing was changed",
    "is still paused",
];
/// What one says of a container that does not.
const IS_LOST: [&str; 5] = [
    ": it ended;",
    "could not be brought back",
    "did not go on",
    "kill it",
    "has ended meanwhile",
];

/// How an operation went.
#[derive(Debug)]
pub(crate) enum End {
    Success,
    Failure(String),
    /// By SIGKILL.
    Cut,
}

/// How the container is, as far as the operation's caller can know.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum State {
    Runs,
    Ended,
    Lost,
}

impl End {
    /// By what it said, as a person would; and by its status, where it said nothing.
    pub(crate) fn state(&self, status: &str, mishap: &Mishap) -> Result<State> {
        let is_there = !matches!(status, "" | "stopped");
        match self {
            // Others may wait for the process that has ended, and say so.
            Self::Failure(_) if mishap.crashes() => Ok(State::Lost),
            Self::Failure(said) if IS_LOST.iter().any(|part| said.contains(part)) => {
                ensure!(mishap.is_fatal(), "lost by {mishap:?}: {said}");
                Ok(State::Lost)
            }
            Self::Failure(said) if GOES_ON.iter().any(|part| said.contains(part)) => {
                ensure!(is_there, "it has ended, but: {said}");
                Ok(State::Runs)
            }
            Self::Failure(said) => bail!("no word of how things are: {said}"),
            Self::Success | Self::Cut if is_there => Ok(State::Runs),
            Self::Success | Self::Cut => Ok(State::Ended),
        }
    }
}
