//! Errors of the driver's thread.

use std::io;
use std::time::Duration;

use stasis_injected_survey::{FUNCTIONS, Other, Read, name_of};

/// The most time for an answer: libcuda may be in the way of a thread that holds its locks.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Why a request was not answered, or not carried out.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum VisitError {
    /// A call of libcuda that must not fail.
    #[error("{call} on the driver's checkpoint thread: CUDA error {result}")]
    Call {
        call: &'static str,
        result: u64,
        /// The number of the item among those of the request.
        item: u64,
    },
    /// Another step that must not fail.
    #[error("{what} on the driver's checkpoint thread: error {result}")]
    Other {
        what: &'static str,
        result: u64,
        /// The number of the item among those of the request.
        item: u64,
    },
    /// The context of this memory has failed, for the program as well: on this thread the same copy
    /// was made before, and the process is locked.
    #[error("16 bytes of GPU memory are not what they were: CUDA error {result}")]
    Tagged { result: u64 },
    /// Nothing has changed.
    #[error("the driver's checkpoint thread has waited for us too long, and has gone")]
    Abandoned,
    /// Nothing of the request has begun.
    #[error("the operation that this was asked for waits no more")]
    Over,
    /// The thread carries out other commands all the time.
    #[error("the driver's checkpoint thread is busy")]
    Busy,
    /// The call goes on, and ends by itself.
    #[error("no answer of the driver's checkpoint thread within {} s", PATIENCE.as_secs())]
    NoAnswer,
    /// An error of ptrace(2), `/proc` or the process's memory.
    #[error("the driver's checkpoint thread cannot be asked")]
    Io(#[from] io::Error),
}

impl VisitError {
    /// Reads the error in an answer.
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
