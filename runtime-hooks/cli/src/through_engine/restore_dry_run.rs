//! `stasis restore --dry-run`: whether it would begin.

use std::fmt;

use serde::Serialize;
use stasis_config::Settings;
use stasis_engine::error::kind::Kind;
use stasis_locate::engine::Engine;

use super::command::EngineCommand;
use super::no_way::NoWay;
use super::outcome::Outcome;
use super::restore_way::RestoreWay;
use crate::answer::exit::Exit;
use crate::answer::name;
use crate::images::verify::{Reading, Refused, look};
use crate::log::past::Predicted;

/// The expected course of a restore.
#[derive(Debug, Serialize)]
pub(super) struct DryRun {
    name: String,
    container: Option<String>,
    engine: Option<Engine>,
    /// The engine's command; `None` if there is no way.
    command: Option<EngineCommand>,
    /// The image, as the engine names it.
    image: Option<String>,
    /// Whether a restore would begin now; `None` if its engine has packed the image, or nothing
    /// shows that it is whole.
    begins: Option<bool>,
    /// The kind with which it would be refused.
    kind: Option<Kind>,
    /// All reasons for that.
    refusals: Vec<Refused>,
    predicted_restore: Option<Predicted>,
    notes: Vec<String>,
}

impl DryRun {
    pub(super) fn of(
        settings: &Settings,
        begun: Outcome,
        way: Result<RestoreWay, NoWay>,
        predicted_restore: Option<Predicted>,
    ) -> Self {
        let mut answer = Self {
            name: begun.name,
            container: begun.container,
            engine: begun.engine,
            command: None,
            image: None,
            begins: None,
            kind: None,
            refusals: Vec::new(),
            predicted_restore,
            notes: Vec::new(),
        };
        let way = match way {
            Ok(way) => way,
            Err(no_way) => {
                answer.notes.extend_from_slice(no_way.notes());
                answer.refuse(no_way.kind(), no_way.to_string());
                return answer;
            }
        };
        answer.command = Some(way.command);
        answer.image = way.image;
        match way
            .directory
            .map(|directory| look(settings, &directory, Reading::Records))
        {
            None => answer
                .notes
                .push("its engine packed the image, so that it cannot be checked here".to_owned()),
            Some(report) => {
                answer.begins = report.restorable.or(report.is_plain.then_some(true));
                answer.kind = report.kind;
                answer.refusals = report.refusals;
                answer.notes = report.notes;
            }
        }
        answer
    }

    fn refuse(&mut self, kind: Kind, text: String) {
        self.begins = Some(false);
        self.kind.get_or_insert(kind);
        self.refusals.push(Refused { kind, text });
    }

    pub(super) fn exit(&self) -> Exit {
        match self.kind {
            Some(Kind::NoContainer) => Exit::Unable,
            _ => Exit::of(!self.is_refused()),
        }
    }

    pub(super) fn is_refused(&self) -> bool {
        self.begins == Some(false)
    }
}

impl fmt::Display for DryRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for refused in &self.refusals {
            writeln!(f, "{} [{}]", name(&refused.text), refused.kind)?;
        }
        for note in &self.notes {
            writeln!(f, "{}", name(note))?;
        }
        if let Some(command) = &self.command {
            writeln!(f, "command: {command}")?;
        }
        if let Some(image) = &self.image {
            writeln!(f, "image: {}", name(image))?;
        }
        if let Some(predicted) = &self.predicted_restore {
            writeln!(f, "expected: {}", predicted.text_with_basis())?;
        }
        let container = name(&self.name);
        match self.begins {
            Some(true) => write!(f, "{container}: a restore would begin"),
            Some(false) => write!(f, "{container}: a restore would be refused"),
            None => write!(f, "{container}: its engine would be asked to restore it"),
        }
    }
}
