//! The failures that a runtime reports of an operation.

use anyhow::{Context, Result};
use serde_json::Value;
use stasis_engine::error::kind::{Kind, State};

/// The last error in a runtime's log.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The message for people.
    pub message: String,
    /// Why it failed; `None` of runc's and crun's own errors.
    pub kind: Option<Kind>,
    /// How the container is; `None` of runc's and crun's own errors.
    pub state: Option<State>,
    /// Whether a checkpoint has made its image all the same.
    pub image_complete: bool,
}

impl Failure {
    /// Reads the log as engines do: the last object of level "error". crun writes an object on
    /// several lines.
    pub fn last_in(log: &str) -> Result<Option<Self>> {
        let mut last = None;
        for object in serde_json::Deserializer::from_str(log).into_iter::<Value>() {
            let object = object?;
            if object["level"] == "error" {
                last = Some(Self::of(&object)?);
            }
        }
        Ok(last)
    }

    /// Parses a failure in `operations.log`, a runtime's log or `--json`.
    pub fn of(object: &Value) -> Result<Self> {
        let message = object["msg"].as_str().or(object["error"].as_str());
        Ok(Self {
            message: message.unwrap_or_default().to_owned(),
            kind: word(&object["kind"], Kind::ALL, Kind::name)?,
            state: word(&object["state"], State::ALL, State::name)?,
            image_complete: object["image_complete"] == true,
        })
    }

    /// Parses a failure of `cuda-checkpoint --container`.
    pub fn of_cuda_checkpoint(said: &str) -> Result<Self> {
        let end = said.trim_end().rsplit_once(" [");
        let words = end.and_then(|(_, words)| words.split_once("] state="));
        let (kind, state) = words.with_context(|| format!("not named: {said}"))?;
        let failure = serde_json::json!({"msg": said, "kind": kind, "state": state});
        Self::of(&failure)
    }
}

/// Returns a field's word of a closed list, if the field exists.
fn word<T: Copy>(field: &Value, all: &[T], name: fn(T) -> &'static str) -> Result<Option<T>> {
    let Some(text) = field.as_str() else {
        return Ok(None);
    };
    let known = all.iter().find(|word| name(**word) == text);
    known
        .copied()
        .map(Some)
        .with_context(|| format!("{text:?} is no word of the engine"))
}
