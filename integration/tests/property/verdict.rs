//! How an operation ended, and what its caller then knows of the container.

use anyhow::{Result, bail, ensure};
use stasis::error::kind;
use stasis_integration::container::failure::Failure;

use crate::fault::Fault;

/// How an operation went.
#[derive(Debug)]
pub(crate) enum End {
    Success,
    Failure(Failure),
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
    /// By the state that it reports; and by the container's status, where it reports nothing.
    pub(crate) fn state(&self, status: &str, fault: &Fault) -> Result<State> {
        let is_there = !matches!(status, "" | "stopped");
        match self {
            // The other processes may wait for the one that has ended.
            Self::Failure(_) if fault.crashes() => Ok(State::Lost),
            Self::Failure(failure) => match failure.state {
                Some(kind::State::Ended | kind::State::Lost | kind::State::WithoutMemory) => {
                    ensure!(fault.is_fatal(), "lost by {fault:?}: {failure:?}");
                    Ok(State::Lost)
                }
                Some(kind::State::Unharmed | kind::State::Paused) => {
                    ensure!(is_there, "it has ended, but: {failure:?}");
                    Ok(State::Runs)
                }
                Some(kind::State::Waiting | kind::State::Unknown) | None => {
                    bail!("nobody knows how the container is: {failure:?}")
                }
            },
            Self::Success | Self::Cut if is_there => Ok(State::Runs),
            Self::Success | Self::Cut => Ok(State::Ended),
        }
    }
}
