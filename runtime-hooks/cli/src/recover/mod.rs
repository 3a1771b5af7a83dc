//! `stasis recover`: undoes killed operations whose keepers were killed, too.

mod report;

use std::io;
use std::path::{Path, PathBuf};

use stasis_config::Settings;
use stasis_engine::error::kind::{Diagnosis, Kind, State};
use stasis_engine::error::{Error, chain};
use stasis_engine::operation::undo::Undo;
use stasis_engine::operation::{
    Operation, OperationError, directories, directory_of, id_of, root_of,
};
use stasis_engine::recovery::report::Recovered;
use stasis_engine::recovery::waiting::waits_for;
use stasis_engine::recovery::{begin_recovery, take_up};
use stasis_host::cancel::Cancel;
use stasis_lifecycle::stopped::push_again::PushAgain;
use stasis_locate::{LocateError, called, locate};

use crate::answer::exit::Exit;
use crate::answer::{Format, show_all, write_line};
use crate::command_error::CommandError;
use report::{ContainerRecovery, Outcome};

/// The containers to recover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// All containers with something to undo.
    All,
    /// The container of this id or name, or the containers whose ids begin so.
    Named(String),
}

/// Carries the command out and returns the exit code.
///
/// # Errors
/// The container is not known, or the state directory cannot be read.
pub fn run(settings: &Settings, which: &Which, format: Format) -> Result<Exit, CommandError> {
    let found = match which {
        Which::All => recover(settings, |_| true)?,
        Which::Named(name) => {
            let id = meant(&settings.paths.state_dir, name)?;
            recover(settings, |container| container.starts_with(id.as_str()))?
        }
    };
    match format {
        Format::Text if found.is_empty() => write_line(&"nothing to recover")?,
        _ => show_all("containers", &found, format)?,
    }
    let is_undone = |found: &ContainerRecovery| found.result == Outcome::Undone;
    Ok(Exit::of_all(found.iter().map(is_undone)))
}

/// Returns the beginning of the ids that a name stands for: of operations, or of a known container.
fn meant(state_dir: &Path, name: &str) -> Result<String, CommandError> {
    let directories = directories(state_dir).map_err(CommandError::Recover)?;
    let is_its = |directory: &PathBuf| id_of(directory).starts_with(name);
    if !name.is_empty() && directories.iter().any(is_its) {
        return Ok(name.to_owned());
    }
    match locate(name, None) {
        Ok(located) => Ok(located.container.id().to_owned()),
        // The container does not run.
        Err(LocateError::Container(_)) => Ok(name.to_owned()),
        Err(LocateError::NotFound { id, .. }) => Err(CommandError::NothingOf(id)),
        Err(error) => Err(error.into()),
    }
}

/// Undoes killed operations, and removes files of records that are not needed any more. An
/// operation that is under way, or waits for a process that does not answer, is left alone. Also
/// starts the pending pushes of stopped containers' images.
fn recover(
    settings: &Settings,
    is_meant: impl Fn(&str) -> bool,
) -> Result<Vec<ContainerRecovery>, CommandError> {
    let left = Undo::all(&settings.paths.state_dir).map_err(CommandError::Recover)?;
    let left = left.into_iter();
    let mut found: Vec<ContainerRecovery> = left
        .filter(|undo| is_meant(&undo.id))
        .map(|undo| recover_one(settings, &undo))
        .collect();
    let unreadable = unreadable(&settings.paths.state_dir, &is_meant);
    found.extend(unreadable.map_err(CommandError::Recover)?);
    remove_rests(&settings.paths.state_dir, is_meant).map_err(CommandError::Recover)?;
    // A push that cannot start now can the next time.
    let _ = PushAgain::of(settings).map(|again| again.start());
    Ok(found)
}

/// Finds unreadable records, which keep every other operation off their containers.
fn unreadable(
    state_dir: &Path,
    is_meant: impl Fn(&str) -> bool,
) -> io::Result<Vec<ContainerRecovery>> {
    let found = |directory: PathBuf| {
        let error = Undo::read(&directory).err()?;
        Some(ContainerRecovery {
            called: called(id_of(&directory), &root_of(&directory)),
            container: id_of(&directory).to_owned(),
            root: root_of(&directory),
            operation: "operation",
            result: Outcome::Unreadable,
            kind: None,
            state: None,
            error: Some(format!(
                "{}; run `stasis recover` of the version that wrote it, or kill the container",
                chain(&error)
            )),
        })
    };
    let directories = directories(state_dir)?.into_iter();
    let meant = directories.filter(|directory| is_meant(id_of(directory)));
    Ok(meant.filter_map(found).collect())
}

/// Finds the operations that only `stasis recover`, or the next operation, undoes.
pub(crate) fn cut_off(state_dir: &Path) -> io::Result<Vec<Undo>> {
    let mut left = Undo::all(state_dir)?;
    left.retain(|undo| Undo::is_cut_off(&directory_of(state_dir, &undo.root, &undo.id)));
    Ok(left)
}

/// Removes rests of records whose operations and keepers were killed while they removed them.
fn remove_rests(state_dir: &Path, is_meant: impl Fn(&str) -> bool) -> io::Result<()> {
    for directory in directories(state_dir)? {
        // An operation under way removes its files itself.
        if is_meant(id_of(&directory))
            && let Ok(operation) = Operation::begin_recovery(directory)
        {
            operation.clear_unless_pending();
        }
    }
    Ok(())
}

fn recover_one(settings: &Settings, undo: &Undo) -> ContainerRecovery {
    let found = |result, state, failure: Option<(Kind, String)>| ContainerRecovery {
        called: called(&undo.id, &undo.root),
        container: undo.id.clone(),
        root: undo.root.clone(),
        operation: undo.verb(),
        result,
        state,
        kind: failure.as_ref().map(|(kind, _)| *kind),
        error: failure.map(|(_, error)| error),
    };
    let failed = |result, error: &Error| {
        let Diagnosis { kind, state, .. } = error.diagnosis();
        found(result, Some(state), Some((kind, chain(error))))
    };
    match attempt(settings, undo) {
        Ok(Recovered::Undone(state)) => found(Outcome::Undone, Some(state), None),
        Ok(Recovered::Lost(error)) => failed(Outcome::Lost, &error),
        Ok(Recovered::NotYet(error)) => failed(Outcome::Waiting, &error),
        Err(error) => {
            let failure = Some((error.kind(), chain(&error)));
            match error {
                OperationError::Unfinished(_) => {
                    found(Outcome::Waiting, Some(State::Waiting), failure)
                }
                _ => found(Outcome::UnderWay, None, failure),
            }
        }
    }
}

fn attempt(settings: &Settings, undo: &Undo) -> Result<Recovered, OperationError> {
    let directory = directory_of(&settings.paths.state_dir, &undo.root, &undo.id);
    let operation = begin_recovery(&directory)?;
    // The operation may have been undone before the lock was taken.
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_name_that_nobody_knows_is_an_error() {
        let state = tempfile::tempdir().unwrap();
        let settings = Settings {
            paths: stasis_config::Paths {
                state_dir: state.path().to_owned(),
                ..Settings::default().paths
            },
            ..Settings::default()
        };
        let recovers = |name: &str| run(&settings, &Which::Named(name.to_owned()), Format::Json);
        for name in ["nobody-has-this", ""] {
            let error = recovers(name).unwrap_err();
            assert_eq!(error.diagnosis().kind, Kind::NoContainer, "{error}");
        }
        let operation = Operation::begin(state.path(), Path::new("/run/runc"), "left").unwrap();
        assert_eq!(meant(state.path(), "le").unwrap(), "le");
        assert!(meant(state.path(), "nobody-has-this").is_err());
        drop(operation);
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        let state = tempfile::tempdir().unwrap();
        let operation = Operation::begin(state.path(), Path::new("/run/runc"), "c1").unwrap();
        let record = r#"{"id": "c1", "deadlines": {"of_a_later_version_s": 1}}"#;
        fs::write(operation.directory().join("undo.json"), record).unwrap();
        let found = unreadable(state.path(), |_| true).unwrap();
        let said = found[0].to_string();
        assert!(said.starts_with("c1 (/run/runc): "), "{said}");
        assert!(said.contains("of_a_later_version_s"), "{said}");
        assert!(said.contains("cannot be read") && said.contains("that wrote it"));
        assert_eq!(unreadable(state.path(), |_| false).unwrap().len(), 0);
    }

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
