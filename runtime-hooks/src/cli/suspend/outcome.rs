//! What has become of one container.

use serde::{Deserialize, Serialize};

use crate::cli::answer::amount::{size, took};
use crate::cli::answer::name;
use crate::cli::cuda_checkpoint::in_place::{Changed, Goal, NotChanged};
use crate::cli::locate::LocateError;
use crate::error::chain;
use crate::error::kind::{Diagnosis, Kind, State};

/// What has become of one container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Outcome {
    /// What the command line names it.
    name: String,
    /// Its id, if it was found.
    container: Option<String>,
    result: Word,
    /// What it holds, or held, on its GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    /// What was done in another way.
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
    /// It was so before.
    Already,
    Failed,
}

impl Outcome {
    pub(super) fn changed(name: &str, container: String, changed: Changed) -> Self {
        let Changed {
            already,
            gpu_bytes,
            seconds,
            notes,
        } = changed;
        Self {
            name: name.to_owned(),
            container: Some(container),
            result: if already { Word::Already } else { Word::Done },
            gpu_bytes: Some(gpu_bytes),
            seconds: Some(seconds),
            notes,
            error: None,
            kind: None,
            state: None,
        }
    }

    pub(super) fn failed(name: &str, container: Option<String>, why: NotChanged) -> Self {
        Self {
            name: name.to_owned(),
            container,
            result: Word::Failed,
            gpu_bytes: None,
            seconds: None,
            notes: Vec::new(),
            error: Some(why.error),
            kind: Some(why.diagnosis.kind.to_string()),
            state: Some(why.diagnosis.state.to_string()),
        }
    }

    pub(super) fn not_found(name: &str, error: &LocateError) -> Self {
        let why = NotChanged {
            error: chain(error),
            diagnosis: Diagnosis::new(error.kind(), State::Unharmed),
        };
        Self::failed(name, None, why)
    }

    /// Of a container whose process of ours gave no answer.
    pub(super) fn unknown(name: &str, error: String) -> Self {
        let diagnosis = Diagnosis::new(Kind::Io, State::Unknown);
        Self::failed(name, None, NotChanged { error, diagnosis })
    }

    pub(super) fn is_success(&self) -> bool {
        self.result != Word::Failed
    }

    /// The message of a failure.
    pub(super) fn failure(&self) -> Option<String> {
        let error = self.error.as_ref()?;
        let kind = self.kind.as_deref().unwrap_or_default();
        Some(format!("{}: {error} [{kind}]", self.name))
    }

    /// What was achieved.
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
