//! The parts of the specification, `config.json`, that the shim needs. The low-level runtime reads
//! the rest: a capability or a namespace that this program does not know must not stop a container
//! that runc starts, with a warning at most.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::{Error, Result};

/// A specification.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Spec {
    annotations: Option<HashMap<String, String>>,
    linux: Option<Linux>,
}

#[derive(Debug, Default, Deserialize)]
struct Linux {
    namespaces: Option<Vec<Namespace>>,
    #[serde(rename = "cgroupsPath")]
    cgroups_path: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct Namespace {
    #[serde(rename = "type")]
    kind: String,
    /// The namespace to join; runtime-spec's types write none as the empty text, too.
    path: Option<String>,
}

impl Spec {
    /// Reads a specification.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let read = || -> std::result::Result<Self, Box<dyn std::error::Error>> {
            Ok(serde_json::from_slice(&std::fs::read(path)?)?)
        };
        read().map_err(|error| Error::Invalid(format!("cannot read {}: {error}", path.display())))
    }

    /// The value of an annotation.
    pub(super) fn annotation(&self, name: &str) -> Option<&str> {
        let annotations = self.annotations.as_ref()?;
        annotations.get(name).map(String::as_str)
    }

    /// Returns whether the name of an annotation begins with `prefix`.
    pub(super) fn has_annotation_of(&self, prefix: &str) -> bool {
        let mut names = self.annotations.iter().flat_map(HashMap::keys);
        names.any(|name| name.starts_with(prefix))
    }

    /// Whether the container gets a pid namespace of its own.
    pub(super) fn has_own_pid_namespace(&self) -> bool {
        let namespaces = self
            .linux
            .as_ref()
            .and_then(|linux| linux.namespaces.as_ref());
        let pid = namespaces.and_then(|all| all.iter().find(|one| one.kind == "pid"));
        pid.is_some_and(|one| one.path.as_deref().unwrap_or_default().is_empty())
    }

    /// Returns the cgroup that it names.
    pub(super) fn cgroups_path(self) -> Option<PathBuf> {
        self.linux?.cgroups_path
    }
}
