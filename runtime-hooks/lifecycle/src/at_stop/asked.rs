//! The annotations of a container that ask for a checkpoint in the place of its end by a stop.

use std::path::PathBuf;

use nix::libc::{SIGINT, SIGQUIT, SIGTERM};
use stasis_host::signal;

use crate::pod;
use crate::stopped::key::is_name;
use stasis_engine::container::spec::Spec;
use stasis_engine::container::spec::annotation::{CHECKPOINT as ANNOTATION, CHECKPOINT_KEY as KEY};

/// Where engines put the signal by which a container is stopped (OCI image specification).
const STOP_SIGNAL: &str = "org.opencontainers.image.stopSignal";
const ON_TERM: &str = "on-term";
const ON_STOP: &str = "on-stop";
/// systemd as a container's first process is stopped by SIGRTMIN+3.
const SIGRTMIN_3: i32 = 37;

/// The checkpoint that a container asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AtStop {
    signals: Vec<i32>,
    key: Option<String>,
}

/// Annotations that cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum InvalidAtStop {
    #[error(
        "the annotation {ANNOTATION}={given:?} of the container is unknown; {ON_STOP} and {ON_TERM} \
         are what there is"
    )]
    Unknown { given: String },
    #[error(
        "the annotation {KEY}={given:?} of the container is no name of letters, digits, \".\", \
         \"_\", \"-\" and \"/\""
    )]
    Key { given: String },
    #[error("{given:?} is no name for a directory, so the container needs the annotation {KEY}")]
    Unnamed { given: String },
}

impl AtStop {
    /// Reads the request in a specification. A pod's sandbox has the pod's annotations, and asks
    /// for nothing.
    pub(crate) fn of(spec: &Spec) -> Result<Option<Self>, InvalidAtStop> {
        if pod::is_sandbox(spec) {
            return Ok(None);
        }
        let signals = match spec.annotation(ANNOTATION) {
            None => return Ok(None),
            Some(ON_TERM) => vec![SIGTERM],
            Some(ON_STOP) => {
                let own = spec.annotation(STOP_SIGNAL).and_then(signal::number_of);
                let usual = [SIGTERM, SIGINT, SIGQUIT, SIGRTMIN_3];
                usual.into_iter().chain(own).collect()
            }
            Some(given) => {
                let given = given.to_owned();
                return Err(InvalidAtStop::Unknown { given });
            }
        };
        let key = match spec.annotation(KEY) {
            Some(given) if !is_name(given) => {
                let given = given.to_owned();
                return Err(InvalidAtStop::Key { given });
            }
            key => key.map(str::to_owned),
        };
        Ok(Some(Self { signals, key }))
    }

    /// Returns whether this signal stops the container. SIGKILL means its end.
    pub(crate) fn is_for(&self, signal: i32) -> bool {
        self.signals.contains(&signal)
    }

    /// Returns the directory of its images, below the directory that it may name. Without a key it
    /// is the container's name in its pod, or its id.
    pub(crate) fn key(&self, spec: &Spec, id: &str) -> Result<PathBuf, InvalidAtStop> {
        let key = self.key.clone();
        let key = key.or_else(|| pod::name_of(spec));
        let key = key.unwrap_or_else(|| id.to_owned());
        match is_name(&key) {
            true => Ok(key.into()),
            false => Err(InvalidAtStop::Unnamed { given: key }),
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::libc::{SIGHUP, SIGKILL, SIGWINCH};
    use serde_json::{Value, json};

    use super::*;

    fn spec(annotations: &Value) -> Spec {
        let bundle = tempfile::tempdir().unwrap();
        let text = json!({ "annotations": annotations }).to_string();
        std::fs::write(bundle.path().join("config.json"), text).unwrap();
        Spec::read(bundle.path()).unwrap()
    }

    fn asked(annotations: &Value) -> Result<Option<AtStop>, InvalidAtStop> {
        AtStop::of(&spec(annotations))
    }

    fn signals(annotations: &Value) -> Vec<i32> {
        let asked = asked(annotations).unwrap().unwrap();
        (1..=64).filter(|signal| asked.is_for(*signal)).collect()
    }

    #[test]
    fn a_reload_is_no_stop_and_a_kill_is_the_end() {
        assert_eq!(signals(&json!({ANNOTATION: "on-term"})), [SIGTERM]);
        let usual = signals(&json!({ANNOTATION: "on-stop"}));
        assert_eq!(usual, [SIGINT, SIGQUIT, SIGTERM, SIGRTMIN_3]);
        assert!(!usual.contains(&SIGHUP) && !usual.contains(&SIGKILL));
        for own in ["SIGWINCH", "28"] {
            let with = signals(&json!({ANNOTATION: "on-stop", STOP_SIGNAL: own}));
            assert!(with.contains(&SIGWINCH), "{own}");
        }
    }

    #[test]
    fn who_asks_for_nothing_or_is_a_sandbox_is_ended() {
        assert_eq!(asked(&json!({})).unwrap(), None);
        for kind in pod::ALL.map(|names| names.kind) {
            let sandbox = json!({ANNOTATION: "on-stop", kind: "sandbox"});
            assert_eq!(asked(&sandbox).unwrap(), None);
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for value in ["", "yes", "on-kill"] {
            let refused = asked(&json!({ANNOTATION: value}));
            assert!(matches!(refused, Err(InvalidAtStop::Unknown { .. })));
        }
        for key in ["", "..", "../other", "/images", "a//b", ".hidden", "a b"] {
            let refused = asked(&json!({ANNOTATION: "on-stop", KEY: key}));
            assert!(matches!(refused, Err(InvalidAtStop::Key { .. })), "{key}");
        }
    }

    #[test]
    fn without_a_key_it_is_called_as_in_its_pod_or_by_its_id() {
        let key = |annotations: Value| {
            let spec = spec(&annotations);
            AtStop::of(&spec).unwrap().unwrap().key(&spec, "c1")
        };
        let on_stop = |more: Value| {
            let mut all = json!({ANNOTATION: "on-stop"});
            for (name, value) in more.as_object().unwrap() {
                all[name] = value.clone();
            }
            key(all)
        };
        assert_eq!(on_stop(json!({})).unwrap(), PathBuf::from("c1"));
        let pod = json!({
            "io.kubernetes.cri.sandbox-name": "train-0",
            "io.kubernetes.cri.container-name": "main",
        });
        assert_eq!(on_stop(pod).unwrap(), PathBuf::from("train-0/main"));
        let given = on_stop(json!({KEY: "team/job"}));
        assert_eq!(given.unwrap(), PathBuf::from("team/job"));
        let spec = spec(&json!({ANNOTATION: "on-stop"}));
        let asked = AtStop::of(&spec).unwrap().unwrap();
        let refused = asked.key(&spec, "a+b");
        assert!(matches!(refused, Err(InvalidAtStop::Unnamed { .. })));
    }
}
