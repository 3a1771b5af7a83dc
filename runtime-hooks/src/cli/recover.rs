//! `stasis recover`: undoes what killed operations have left, where their keepers were killed, too.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use stasis_config::Settings;

use crate::cli::answer::name;
use crate::error::chain;
use crate::error::kind::State;
use crate::host::cancel::Cancel;
use crate::image::stopped::push_again::PushAgain;
use crate::operation::progress::UnderWay;
use crate::operation::undo::Undo;
use crate::operation::{Operation, OperationError, directories, directory_of, id_of};
use crate::recovery::report::Recovered;
use crate::recovery::waiting::waits_for;
use crate::recovery::{begin_recovery, take_up};

/// The containers that are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// All with something to undo.
    All,
    /// Those with this id, or whose id begins so.
    Named(String),
}

/// A container on which an operation has left something to undo.
#[derive(Debug, Serialize)]
pub struct Found {
    /// The container's id.
    pub container: String,
    /// The root of its low-level runtime.
    pub root: PathBuf,
    /// The operation that has begun: "checkpoint", "restore", ...
    pub operation: &'static str,
    /// What has become of it.
    pub result: Outcome,
    /// The container's state now, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// Why it is not undone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What has become of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The container is as it was found, or has ended.
    Undone,
    /// The container cannot be brought back, and has to be killed.
    Lost,
    /// It cannot be undone yet; a keeper tries again.
    Waiting,
    /// The operation, or its keeper, is at work.
    UnderWay,
}

/// Undoes what is left to undo, and removes files of records that nobody needs any more. What is
/// under way, or waits for a process that does not answer, is left to it. Images of
/// stopped containers are pushed that were still to be.
///
/// # Errors
/// The state directory cannot be read.
pub fn recover(settings: &Settings, which: &Which) -> io::Result<Vec<Found>> {
    let is_meant = |container: &str| match which {
        Which::All => true,
        Which::Named(id) => container.starts_with(id.as_str()),
    };
    let left = Undo::all(&settings.paths.state_dir)?.into_iter();
    let found = left
        .filter(|undo| is_meant(&undo.id))
        .map(|undo| recover_one(settings, &undo))
        .collect();
    remove_rests(&settings.paths.state_dir, is_meant)?;
    // What cannot be begun again now can be the next time.
    let _ = PushAgain::of(settings).map(|again| again.start());
    Ok(found)
}

/// What operations have left that are at work no more: their keepers undo it, or `stasis recover`.
///
/// # Errors
/// The state directory cannot be read.
pub(in crate::cli) fn left_behind(state_dir: &Path) -> io::Result<Vec<Undo>> {
    let is_at_work = |undo: &Undo| {
        let directory = directory_of(state_dir, &undo.root, &undo.id);
        let under_way = UnderWay::read(&directory).ok().flatten();
        under_way.is_some_and(|under_way| under_way.is_alive().unwrap_or(false))
    };
    let mut left = Undo::all(state_dir)?;
    left.retain(|undo| !is_at_work(undo));
    Ok(left)
}

/// Removes what is left of the records of operations that were killed, with their keepers, while
/// they removed them.
fn remove_rests(state_dir: &Path, is_meant: impl Fn(&str) -> bool) -> io::Result<()> {
    for directory in directories(state_dir)? {
        // What is under way removes its files itself.
        if is_meant(id_of(&directory))
            && let Ok(operation) = Operation::begin_recovery(directory)
        {
            operation.clear_unless_pending();
        }
    }
    Ok(())
}

fn recover_one(settings: &Settings, undo: &Undo) -> Found {
    let found = |result, state, error| Found {
        container: undo.id.clone(),
        root: undo.root.clone(),
        operation: undo.verb(),
        result,
        state,
        error,
    };
    match attempt(settings, undo) {
        Ok(Recovered::Undone(state)) => found(Outcome::Undone, Some(state), None),
        Ok(Recovered::Lost(error)) => {
            let state = error.diagnosis().state;
            found(Outcome::Lost, Some(state), Some(chain(&error)))
        }
        Ok(Recovered::NotYet(error)) => {
            let state = error.diagnosis().state;
            found(Outcome::Waiting, Some(state), Some(chain(&error)))
        }
        Err(error @ OperationError::Unfinished(_)) => {
            found(Outcome::Waiting, Some(State::Waiting), Some(chain(&error)))
        }
        Err(error) => found(Outcome::UnderWay, None, Some(chain(&error))),
    }
}

fn attempt(settings: &Settings, undo: &Undo) -> Result<Recovered, OperationError> {
    let directory = directory_of(&settings.paths.state_dir, &undo.root, &undo.id);
    let operation = begin_recovery(&directory)?;
    // It may have been undone before the lock was taken.
    let Some(undo) = operation.left_behind()? else {
        return Ok(Recovered::Undone(State::Unharmed));
    };
    let context = undo.context(Cancel::not_needed());
    if let Some(what) = waits_for(&context, &undo) {
        operation.leave_as_it_is()?;
        return Err(OperationError::Unfinished(what.to_string()));
    }
    take_up(&operation, &undo)
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, root) = (name(&self.container), name(&self.root.display()));
        write!(f, "{id} ({root}): a {} was cut off; ", self.operation)?;
        match self.result {
            Outcome::Undone => f.write_str("undone")?,
            Outcome::Lost => f.write_str("the container is lost")?,
            Outcome::Waiting => f.write_str("not undone yet, which is tried again")?,
            Outcome::UnderWay => f.write_str("left alone")?,
        }
        match &self.error {
            Some(error) => write!(f, ": {}", name(error)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn rests_of_records_go_and_what_may_be_pending_stays() {
        let state = tempfile::tempdir().unwrap();
        let root = Path::new("/run/runc");
        let [rest, other, pending, held] = ["rest", "other", "pending", "held"].map(|id| {
            let operation = Operation::begin(state.path(), root, id).unwrap();
            operation.directory().to_owned()
        });
        for directory in [&rest, &other, &pending, &held] {
            fs::create_dir_all(directory).unwrap();
            fs::write(directory.join("progress.json"), "{}").unwrap();
            fs::write(directory.join("children"), "").unwrap();
        }
        fs::write(pending.join("intent.json"), "{").unwrap();
        let holder = Operation::begin(state.path(), root, "held").unwrap();
        remove_rests(state.path(), |id| id != "other").unwrap();
        assert!(!rest.exists());
        assert!(other.join("children").exists());
        assert!(pending.join("intent.json").exists());
        assert!(held.join("children").exists());
        drop(holder);
    }
}
