//! The outcome for a container, and its report.

use std::io;
use std::path::PathBuf;

use serde::Serialize;
use stasis_engine::error::kind::{Diagnosis, Kind, State};
use stasis_engine::operation::verb::Verb;
use stasis_locate::engine::Engine;

use super::command::EngineCommand;
use crate::answer::amount::{size, took};
use crate::answer::exit::Exit;
use crate::answer::names::by_name;
use crate::answer::{Format, answer, name, show_error, write_line};
use crate::log::line::Line;

/// The outcome for a container.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    /// Its name on the command line.
    pub(super) name: String,
    /// Its id.
    pub(super) container: Option<String>,
    pub(super) engine: Option<Engine>,
    /// The engine's command.
    pub(super) command: Option<EngineCommand>,
    pub(super) result: Word,
    /// The image, as the engine names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) image: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    /// The most bytes that one phase has moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    /// Notes for people.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) notes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    /// The container's state now.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    /// The image's path, according to the log.
    #[serde(skip)]
    pub(super) image_path: Option<PathBuf>,
    /// The error without what the message shows anyway.
    #[serde(skip)]
    cause: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Word {
    Done,
    Failed,
    /// A signal asked for the end.
    Cancelled,
}

impl Word {
    pub(super) fn exit(self) -> Exit {
        match self {
            Self::Done => Exit::Done,
            Self::Failed => Exit::Refused,
            Self::Cancelled => Exit::Cancelled,
        }
    }
}

impl Outcome {
    /// Makes the outcome of a container before its operation.
    pub(super) fn begun(name: &str, container: Option<String>, engine: Option<Engine>) -> Self {
        Self {
            name: name.to_owned(),
            container,
            engine,
            command: None,
            result: Word::Done,
            image: None,
            seconds: None,
            bytes: None,
            notes: Vec::new(),
            error: None,
            kind: None,
            state: None,
            image_path: None,
            cause: None,
        }
    }

    /// Takes the facts in a line of `operations.log`.
    pub(super) fn told_by(&mut self, line: Line) {
        self.seconds = Some(line.seconds());
        self.bytes = line.bytes();
        self.cause = line.cause().map(str::to_owned);
        self.image_path = line.image_path;
        self.notes.extend(line.notes);
        self.error = line.error;
        self.kind = line.kind;
        self.state = line.state;
    }

    /// Returns whether stasis has logged the operation.
    pub(super) fn is_logged(&self) -> bool {
        self.seconds.is_some()
    }

    /// Records the failure, with this reason if the log has none.
    pub(super) fn failed(mut self, error: impl FnOnce() -> String, diagnosis: Diagnosis) -> Self {
        let cancelled = Kind::Cancelled.name();
        if self.error.is_none() {
            self.error = Some(error());
            self.kind = Some(diagnosis.kind.to_string());
            self.state = Some(diagnosis.state.to_string());
        }
        self.result = match self.kind.as_deref() == Some(cancelled) {
            true => Word::Cancelled,
            false => Word::Failed,
        };
        self
    }

    /// Adds a possible reason.
    pub(super) fn or_because(mut self, reason: &str) -> Self {
        self.error = self.error.map(|error| format!("{error}; {reason}"));
        self
    }

    /// Records the success.
    pub(super) fn without_error(mut self) -> Self {
        (self.error, self.kind, self.state) = (None, None, None);
        self
    }

    /// Records that the operation was not begun.
    pub(super) fn refused(self, error: String, kind: Kind) -> Self {
        self.failed(|| error, Diagnosis::new(kind, State::Unharmed))
    }

    /// Returns whether its engine has refused it, or failed.
    pub(super) fn is_of_the_engine(&self) -> bool {
        self.kind.as_deref() == Some(Kind::Engine.name())
    }

    pub(super) fn is_unharmed(&self) -> bool {
        self.state.as_deref() == Some(State::Unharmed.name())
    }

    pub(super) fn is_lost(&self) -> bool {
        self.state.as_deref() == Some(State::Lost.name())
    }

    fn exit(&self) -> Exit {
        match self.kind.as_deref() == Some(Kind::NoContainer.name()) {
            true => Exit::Unable,
            false => self.result.exit(),
        }
    }

    /// Returns the message of a failure.
    pub(super) fn failure(&self) -> Option<String> {
        let error = self.cause.as_ref().or(self.error.as_ref())?;
        let id = self.container.as_deref().unwrap_or_default();
        let kind = self.kind.as_deref().unwrap_or_default();
        Some(format!(
            "{}: {} [{kind}]",
            self.name,
            by_name(error, id, &self.name)
        ))
    }

    /// Returns the seconds and the moved bytes, if they are known.
    pub(super) fn measure(&self) -> String {
        let seconds = self.seconds.filter(|seconds| *seconds > 0.0);
        let seconds = seconds.map(|seconds| format!(" in {}", took(seconds)));
        let bytes = self.bytes.map(|bytes| format!(", {}", size(bytes)));
        seconds.unwrap_or_default() + &bytes.unwrap_or_default()
    }

    /// Formats the notes, a line each.
    pub(super) fn note_lines(&self) -> impl Iterator<Item = String> {
        self.notes.iter().map(|note| format!("  {}", name(note)))
    }
}

/// Shows the outcome and returns the exit code.
pub(super) fn report(
    outcome: &Outcome,
    verb: Verb,
    success: &str,
    format: Format,
) -> io::Result<Exit> {
    match (format, outcome.failure()) {
        (Format::Json, _) => answer(outcome)?,
        (Format::Text, None) => {
            write_line(&success)?;
            outcome
                .note_lines()
                .try_for_each(|note| write_line(&note))?;
        }
        (Format::Text, Some(failure)) => {
            show_error(&failure);
            for note in &outcome.notes {
                show_error(note);
            }
            if outcome.result == Word::Cancelled {
                let name = name(&outcome.name);
                write_line(&format!("{name}: {}", taken_back(outcome, verb)))?;
            }
        }
    }
    Ok(outcome.exit())
}

fn taken_back(outcome: &Outcome, verb: Verb) -> &'static str {
    match verb {
        Verb::Checkpoint if outcome.is_unharmed() => "the checkpoint was undone; it runs as before",
        Verb::Restore if !outcome.is_lost() => "the restore was undone; nothing is left of it",
        _ => "it is not as before",
    }
}
