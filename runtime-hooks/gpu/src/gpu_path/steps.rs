//! The lines between an operation and a process that works for it: steps that the operation asks
//! for, and the result of each.

use std::error::Error;
use std::fmt::Debug;
use std::io::{self, BufRead};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use stasis_host::respawn::say;
use stasis_linux::error_chain;
use stasis_memory_store::StoreError;

/// The result of a step.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer<T> {
    /// The step is done.
    Done(T),
    /// The step is not done; the process is as it was.
    Failed(Fault),
}

/// Why a step is not done.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Fault {
    why: String,
    kind: FaultKind,
}

/// The kinds of errors that an operator can act on.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
enum FaultKind {
    Full,
    Damaged,
    Other,
}

impl Fault {
    fn of(error: &io::Error) -> Self {
        let mut cause: Option<&(dyn Error + 'static)> = Some(error);
        let mut kind = FaultKind::Other;
        while let Some(error) = cause {
            if let FaultKind::Other = kind {
                kind = FaultKind::of(error);
            }
            let inner = error.downcast_ref().and_then(io::Error::get_ref);
            cause = inner.map_or_else(|| error.source(), |inner| Some(inner));
        }
        let why = error_chain(error);
        Self { why, kind }
    }
}

impl FaultKind {
    fn of(error: &(dyn Error + 'static)) -> Self {
        let io = error.downcast_ref().map(io::Error::kind);
        match (io, error.downcast_ref()) {
            (Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded), _) => Self::Full,
            (
                _,
                Some(
                    StoreError::Damaged { .. }
                    | StoreError::Chunk { .. }
                    | StoreError::CutOff { .. },
                ),
            ) => Self::Damaged,
            _ => Self::Other,
        }
    }
}

impl From<Fault> for io::Error {
    fn from(Fault { why, kind }: Fault) -> Self {
        let kind = match kind {
            FaultKind::Full => io::ErrorKind::StorageFull,
            FaultKind::Damaged => io::ErrorKind::InvalidData,
            FaultKind::Other => io::ErrorKind::Other,
        };
        Self::new(kind, why)
    }
}

/// Reads the next step; `None` at the end of the input, which is that of the operation.
pub(super) fn next<S: DeserializeOwned>() -> io::Result<Option<S>> {
    let mut line = String::new();
    if io::stdin().lock().read_line(&mut line)? == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_str(&line)?))
}

/// Waits for this step; false at the end of the input.
pub(super) fn asked<S: DeserializeOwned + PartialEq + Debug>(expected: &S) -> io::Result<bool> {
    match next::<S>()? {
        None => Ok(false),
        Some(step) if step == *expected => Ok(true),
        Some(other) => Err(io::Error::other(format!("asked for {other:?}"))),
    }
}

/// Answers whether a step is done.
pub(super) fn report_done<T>(done: io::Result<T>) -> io::Result<T> {
    match &done {
        Ok(_) => say(&Answer::Done(()))?,
        Err(error) => say(&Answer::<()>::Failed(Fault::of(error)))?,
    }
    done
}

/// Answers with the result of a step.
pub(super) fn report_result<T: Serialize>(result: io::Result<T>) -> io::Result<()> {
    say(&match result {
        Ok(given) => Answer::Done(given),
        Err(error) => Answer::Failed(Fault::of(&error)),
    })
}

#[cfg(test)]
mod tests {
    use stasis_memory_store::Index;

    use super::*;

    #[test]
    fn an_error_keeps_its_kind_on_its_way() {
        let full = || io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error());
        let damaged = Index::decode(b"none").unwrap_err();
        let deep = io::Error::other(io::Error::other(full()));
        for (error, kind) in [
            (full(), io::ErrorKind::StorageFull),
            (deep, io::ErrorKind::StorageFull),
            (io::Error::other(damaged), io::ErrorKind::InvalidData),
            (io::Error::other("why"), io::ErrorKind::Other),
        ] {
            let says = error_chain(&error);
            let line = serde_json::to_vec(&Answer::<()>::Failed(Fault::of(&error))).unwrap();
            let Answer::<()>::Failed(fault) = serde_json::from_slice(&line).unwrap() else {
                panic!("it is done");
            };
            let arrived = io::Error::from(fault);
            assert_eq!((arrived.kind(), arrived.to_string()), (kind, says));
        }
    }
}
