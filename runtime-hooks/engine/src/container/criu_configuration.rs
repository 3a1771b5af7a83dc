//! A container's annotation that gives CRIU a configuration file.
//!
//! runc (libcontainer/criu_linux.go, `handleCriuConfigurationFile`) and crun (src/libcrun/criu.c)
//! have CRIU read the file that the annotation `org.criu.config` names, and its options precede the
//! request's. It may name an action script, which CRIU runs as root on the host, so a user who may
//! annotate a container would be root at its checkpoint or restore.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;
use stasis_config::{CriuConfiguration, DEFAULT_PATH, Flavor, Settings};
use stasis_linux::escape::escaped;

use crate::container::spec::{Spec, SpecError};
use crate::container::{Container, ContainerError, read_json};

const ANNOTATION: &str = "org.criu.config";

/// Why a container is neither checkpointed nor restored.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum CriuConfigurationError {
    #[error(
        "the container's annotation {annotation} gives CRIU a configuration file, and such a file \
         may name programs that run as root on this host; start the container without it, or set \
         criu.configuration = \"allow\" in {DEFAULT_PATH}"
    )]
    Annotated { annotation: String },
    #[error(transparent)]
    Container(#[from] ContainerError),
    #[error(transparent)]
    Spec(#[from] SpecError),
}

/// The file that a container's annotation names, if it has one.
pub(crate) fn file_of(spec: Option<Spec>) -> Option<PathBuf> {
    spec?.annotation(ANNOTATION).map(PathBuf::from)
}

/// Refuses a running container with the annotation. The low-level runtime goes by what it has
/// recorded of it: runc by the labels of its state, crun by its copy of the specification.
pub fn refuse_running(
    settings: &Settings,
    flavor: Flavor,
    root: &Path,
    container: &Container,
) -> Result<(), CriuConfigurationError> {
    if settings.criu.configuration == CriuConfiguration::Allow {
        return Ok(());
    }
    let recorded = root.join(container.id());
    match flavor {
        Flavor::Runc => {
            let state: Value = read_json(&recorded.join("state.json"))?;
            let labels = state.pointer("/config/labels").and_then(Value::as_array);
            let labels = labels.into_iter().flatten().filter_map(Value::as_str);
            refuse_among(labels)
        }
        Flavor::Crun => refuse_in(&read_json(&recorded.join("config.json"))?),
    }
}

/// Refuses the specification of a new container with the annotation. The low-level runtime reports
/// a missing specification.
pub(crate) fn refuse_new(settings: &Settings, bundle: &Path) -> Result<(), CriuConfigurationError> {
    if settings.criu.configuration == CriuConfiguration::Allow {
        return Ok(());
    }
    match Spec::read(bundle) {
        Ok(spec) => refuse_in(spec.tree()),
        Err(SpecError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn refuse_in(spec: &Value) -> Result<(), CriuConfigurationError> {
    let mut annotations = Vec::new();
    // Go, and so runc, takes a key for a field whatever its case is (encoding/json).
    for (key, value) in spec.as_object().into_iter().flatten() {
        if key.eq_ignore_ascii_case("annotations") {
            let found = value.as_object().into_iter().flatten();
            annotations.extend(
                found.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or(""))),
            );
        }
    }
    refuse_among(annotations.iter().map(String::as_str))
}

/// `labels` are "NAME=VALUE", as runc has them: it looks for the name in front of the first "="
/// (libcontainer/utils, `SearchLabels`), wherever an annotation's name ends.
fn refuse_among<'l>(
    mut labels: impl Iterator<Item = &'l str>,
) -> Result<(), CriuConfigurationError> {
    let is_ours = |label: &&str| label.split('=').next() == Some(ANNOTATION);
    match labels.find(is_ours) {
        None => Ok(()),
        Some(label) => Err(CriuConfigurationError::Annotated {
            annotation: escaped(label.as_bytes()),
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_annotation_is_found_however_it_is_written() {
        for spec in [
            json!({"annotations": {"org.criu.config": "/tmp/mine.conf"}}),
            json!({"annotations": {"a": "b", "org.criu.config": ""}}),
            json!({"annotations": {"org.criu.config=/tmp/mine.conf#": "x"}}),
            json!({"Annotations": {"org.criu.config": "/tmp/mine.conf"}}),
        ] {
            let error = refuse_in(&spec).unwrap_err();
            assert!(
                error.to_string().contains("annotation org.criu.config="),
                "{error}"
            );
        }
        for spec in [
            json!({}),
            json!({"annotations": null}),
            json!({"annotations": {"org.criu.configuration": "x", "x": "org.criu.config=y"}}),
        ] {
            refuse_in(&spec).unwrap();
        }
    }

    #[test]
    fn nothing_of_its_value_acts_on_a_terminal() {
        let spec = json!({"annotations": {"org.criu.config": "/tmp/\u{1b}[2J\n"}});
        let text = refuse_in(&spec).unwrap_err().to_string();
        assert!(text.contains("/tmp/\\u{1b}[2J\\n"), "{text}");
    }

    #[test]
    fn the_settings_may_allow_it() {
        let bundle = tempfile::tempdir().unwrap();
        let mut settings = Settings::default();
        refuse_new(&settings, bundle.path()).unwrap();
        let spec = json!({"annotations": {"org.criu.config": "/etc/criu/ours.conf"}});
        std::fs::write(bundle.path().join("config.json"), spec.to_string()).unwrap();
        refuse_new(&settings, bundle.path()).unwrap_err();
        settings.criu.configuration = CriuConfiguration::Allow;
        refuse_new(&settings, bundle.path()).unwrap();
    }
}
