//! Why the driver's thread has not done what it was asked.

use std::io;
use std::time::Duration;

use stasis_injected_survey::{FUNCTIONS, Other, Read, name_of};

/// How long its answer is waited for: libcuda may be in the way of a thread that holds its locks.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Why it is not known, or not done.
#[derive(Debug, thiserror::Error)]
pub enum SurveyError {
    /// A call of libcuda that must not fail.
    #[error("{call} on the driver's checkpoint thread: CUDA error {result}")]
    Call {
        /// Its name.
        call: &'static str,
        /// Its `CUresult`.
        result: u64,
        /// For which item of those that were asked about at once.
        item: u64,
    },
    /// Something else that must not fail.
    #[error("{what} on the driver's checkpoint thread: error {result}")]
    Other {
        /// What it is.
        what: &'static str,
        /// An errno, or what else there is to say.
        result: u64,
        /// For which item of those that were asked about at once.
        item: u64,
    },
    /// The process must not go on.
    #[error("16 bytes of GPU memory are not what they were: CUDA error {result}")]
    Tagged {
        /// The `CUresult` of putting them back.
        result: u64,
    },
    /// It is as it was.
    #[error("the driver's checkpoint thread has waited for us too long, and has gone")]
    Abandoned,
    /// It carries out something else, all the time.
    #[error("the driver's checkpoint thread is busy")]
    Busy,
    /// The call goes on, and ends by itself.
    #[error("no answer of the driver's checkpoint thread within {} s", PATIENCE.as_secs())]
    NoAnswer,
    /// Of ptrace(2), `/proc` and the process's memory.
    #[error("the driver's checkpoint thread cannot be asked")]
    Io(#[from] io::Error),
}

impl SurveyError {
    /// What an answer says of failures.
    pub(super) fn in_answer(answer: &Read<'_>) -> Result<(), Self> {
        let item = answer.item;
        match answer.failed {
            Some((call, result)) if call == Other::PutBack.number() => Err(Self::Tagged { result }),
            Some((number, result)) => {
                let name = name_of(number).unwrap_or("a call");
                Err(match number < FUNCTIONS.len() as u64 {
                    true => Self::Call {
                        call: name,
                        result,
                        item,
                    },
                    false => Self::Other {
                        what: name,
                        result,
                        item,
                    },
                })
            }
            None if answer.is_abandoned => Err(Self::Abandoned),
            None => Ok(()),
        }
    }
}
