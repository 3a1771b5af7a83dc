//! An operation through an engine's command, and its outcome according to `operations.log`.

use std::path::Path;

use stasis_config::Settings;
use stasis_engine::error::kind::{Diagnosis, Kind, State};
use stasis_engine::operation::verb::Verb;

use super::call::{Ended, Record, call, until_undone};
use super::command::EngineCommand;
use super::outcome::Outcome;
use super::progress::ProgressLine;
use crate::log::line::{Line, read};

/// An operation to be carried out.
#[derive(Debug)]
pub(super) struct Attempt<'a> {
    pub(super) settings: &'a Settings,
    pub(super) verb: Verb,
    /// The container, if its id is known.
    pub(super) id: Option<&'a str>,
    pub(super) record: Record<'a>,
}

impl Attempt<'_> {
    /// Calls the command, and if it fails, waits until nothing is left to be undone. `state` is
    /// called then, if the log does not have the state.
    pub(super) fn make(
        &self,
        command: &EngineCommand,
        mut outcome: Outcome,
        mut line: ProgressLine,
        state: impl FnOnce() -> State,
    ) -> Outcome {
        outcome.command = Some(command.clone());
        if let Some(other) = self.record.under_way() {
            let (verb, pid) = (other.operation, other.pid);
            let error = format!("a {verb} is running (process {pid}); nothing was done");
            return outcome.refused(error, Kind::Busy);
        }
        let before = self.logged().len();
        let ended = match call(command, self.verb, &self.record, &mut line) {
            Ok(ended) => ended,
            Err(error) => {
                let error = format!("{command} cannot be called: {error}; nothing was done");
                return outcome.refused(error, Kind::Engine);
            }
        };
        let mut lines = self.logged();
        if lines.len() > before
            && let Some(line) = lines.pop()
        {
            outcome.told_by(line);
        }
        if ended.is_success() {
            if ended.was_told_to_end {
                let note = "the signal came too late to undo it";
                outcome.notes.push(note.to_owned());
            }
            return outcome.without_error();
        }
        until_undone(&self.record, self.settings.deadlines.stalled());
        if self.record.is_left() {
            let (verb, name) = (self.verb, &outcome.name);
            let left = format!(
                "the {verb} was killed together with its keeper, and {name} stands still; run: \
                 stasis recover {name}"
            );
            return outcome.failed(|| left, Diagnosis::new(Kind::CutOff, State::Unknown));
        }
        let diagnosis = Diagnosis::new(kind_of(&ended), state());
        outcome.failed(|| format!("{command}: {}", ended.failure()), diagnosis)
    }

    /// Returns the log's lines on such operations on the container, the oldest first. Unreadable
    /// lines are left out.
    fn logged(&self) -> Vec<Line> {
        let id = self.id.unwrap_or_default();
        logged(&self.settings.paths.log_dir, id, self.verb)
    }
}

fn kind_of(ended: &Ended) -> Kind {
    match ended.was_told_to_end {
        true => Kind::Cancelled,
        false => Kind::Engine,
    }
}

/// Returns the log's lines on such operations on a container, the oldest first.
pub(super) fn logged(log_dir: &Path, id: &str, verb: Verb) -> Vec<Line> {
    let (mut lines, verb) = (Vec::new(), verb.to_string());
    let _ = read(log_dir, |line| {
        if line.container == id && line.operation == verb {
            lines.push(line);
        }
    });
    lines
}
