//! The outcome for one container of a group.

use std::path::PathBuf;

use serde::Serialize;
use stasis_engine::error::kind::{Kind, State};
use stasis_engine::error::without_heading;
use stasis_group::member::Ended;
use stasis_locate::engine::Engine;

use crate::answer::names::by_name;

/// The operations of groups.
const VERBS: [&str; 2] = ["checkpoint", "restore"];

/// The outcome.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    name: String,
    container: String,
    engine: Option<Engine>,
    /// `None` if there is no checkpoint.
    image: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    /// Its state, if something has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
}

impl Row {
    pub(super) fn of(
        name: &str,
        container: &str,
        engine: Option<Engine>,
        image: Option<PathBuf>,
        ended: Ended,
    ) -> Self {
        Self {
            name: name.to_owned(),
            container: container.to_owned(),
            engine,
            image,
            error: ended.error,
            kind: ended.kind,
            state: ended.state,
        }
    }

    pub(super) fn is_well(&self) -> bool {
        self.error.is_none()
    }

    /// Returns whether its state is known, and none of these, which an undone operation leaves.
    pub(super) fn is_not(&self, taken_back: &[State]) -> bool {
        let is_now = |now: &str| taken_back.iter().any(|state| state.name() == now);
        self.state.as_deref().is_some_and(|now| !is_now(now))
    }

    /// Returns the message, but not for a container that only shares the outcome of others.
    pub(super) fn failure(&self, taken_back: &[State]) -> Option<String> {
        let error = self.error.as_ref()?;
        let is_others =
            self.kind.as_deref() == Some(Kind::GroupAbandoned.name()) && !self.is_not(taken_back);
        let (id, kind) = (self.container.as_str(), self.kind.as_deref());
        let kind = kind.unwrap_or_default();
        let cause = VERBS.iter().fold(error.as_str(), |text, verb| {
            without_heading(text, verb, id, kind)
        });
        let cause = by_name(cause, id, &self.name);
        (!is_others).then(|| format!("{}: {cause} [{kind}]", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_container_and_kind_once() {
        let ended = Ended::unknown(
            "checkpoint of container abc failed [driver]: abc hangs; kill it".to_owned(),
            "driver",
        );
        let row = Row::of("job", "abc", None, None, ended);
        let failure = row.failure(&[State::Unharmed]);
        assert_eq!(failure.as_deref(), Some("job: job hangs; kill it [driver]"));
    }
}
