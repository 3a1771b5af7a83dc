//! The outcome for one container.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use stasis_engine::error::kind::{Diagnosis, Kind, State};
use stasis_engine::suspend::Change;

use super::Goal;
use crate::answer::amount::{size, took};
use crate::answer::name;

/// The outcome for one container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Outcome {
    /// Its name on the command line.
    name: String,
    /// Its id, if it was found.
    container: Option<String>,
    result: Word,
    /// Bytes that it holds, or held, on its GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    /// Notes on steps that took another way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    /// The container's state now.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Word {
    Done,
    /// The container was in that state before.
    Already,
    Failed,
}

impl Outcome {
    /// Makes the outcome of a container that has reached its goal, with the bytes that it holds, or
    /// held, on its GPUs, and the time that took.
    pub(super) fn changed(
        name: &str,
        container: &str,
        change: Change,
        (gpu_bytes, took): (u64, Duration),
        notes: Vec<String>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            container: Some(container.to_owned()),
            result: match change {
                Change::Made => Word::Done,
                Change::None => Word::Already,
            },
            gpu_bytes: Some(gpu_bytes),
            seconds: Some(took.as_secs_f64()),
            notes,
            error: None,
            kind: None,
            state: None,
        }
    }

    pub(super) fn failed(
        name: &str,
        container: Option<&str>,
        error: String,
        diagnosis: Diagnosis,
    ) -> Self {
        Self {
            name: name.to_owned(),
            container: container.map(str::to_owned),
            result: Word::Failed,
            gpu_bytes: None,
            seconds: None,
            notes: Vec::new(),
            error: Some(error),
            kind: Some(diagnosis.kind.to_string()),
            state: Some(diagnosis.state.to_string()),
        }
    }

    /// Returns whether it may succeed later by itself: once others have made room, or have finished
    /// with the container.
    pub(super) fn may_pass(&self) -> bool {
        let kinds = [Kind::NoGpuMemory, Kind::NoHostMemory, Kind::Busy].map(Kind::name);
        let is_one = self
            .kind
            .as_deref()
            .is_some_and(|kind| kinds.contains(&kind));
        is_one && self.state.as_deref() == Some(State::Unharmed.name())
    }

    /// Returns whether there is no such container.
    pub(super) fn is_of_none(&self) -> bool {
        self.kind.as_deref() == Some(Kind::NoContainer.name())
    }

    pub(super) fn is_success(&self) -> bool {
        self.result != Word::Failed
    }

    /// Returns the message of a failure.
    pub(super) fn failure(&self) -> Option<String> {
        let error = self.error.as_ref()?;
        let kind = self.kind.as_deref().unwrap_or_default();
        Some(format!("{}: {error} [{kind}]", self.name))
    }

    /// Describes the success.
    pub(super) fn text(&self, goal: Goal) -> String {
        let bytes = size(self.gpu_bytes.unwrap_or_default());
        let seconds = took(self.seconds.unwrap_or_default());
        let text = match (self.result, goal) {
            (Word::Already, Goal::Suspended) => format!("is suspended already, with {bytes}"),
            (Word::Already, Goal::Running) => "runs already".to_owned(),
            (_, Goal::Suspended) => {
                format!("suspended in {seconds}; {bytes} of GPU memory are free")
            }
            (_, Goal::Running) => format!("runs again after {seconds}, with {bytes}"),
        };
        let mut lines = vec![format!("{}: {text}", name(&self.name))];
        lines.extend(self.notes.iter().map(|note| format!("  {}", name(note))));
        lines.join("\n")
    }
}
