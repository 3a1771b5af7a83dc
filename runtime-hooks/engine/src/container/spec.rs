//! The new container's specification: `config.json` in its bundle.
//!
//! It comes from the caller, who may give the container anything in it; an image never changes it.
//! stasis keeps the whole JSON tree, because a restore on this machine may have to write it with
//! another device number or library file, and must not lose unknown fields.

pub mod annotation;
pub mod variables;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;
use stasis_linux::file::{self, Access, Durability};

/// Its name in a bundle (OCI runtime specification, "bundle").
const FILE_NAME: &str = "config.json";
/// runc has no limit; real ones have some ten KiB.
const MAX_BYTES: u64 = 16 << 20;

/// A bundle's `config.json`: the text that was read, and the tree to write.
#[derive(Debug)]
pub struct Spec {
    path: PathBuf,
    original: Vec<u8>,
    tree: Value,
}

/// An error of reading or writing a bundle's `config.json`.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum SpecError {
    #[error("cannot {action} {path}")]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("cannot make sense of {path}: {what}")]
    Malformed { path: PathBuf, what: String },
}

/// An entry of `linux.devices`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Device {
    /// Where it is in the container.
    pub(crate) path: String,
    /// "c", "u", "b" or "p".
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) major: i64,
    #[serde(default)]
    pub(crate) minor: i64,
    #[serde(rename = "fileMode")]
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
}

/// An entry of `mounts` that is a bind mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind<'s> {
    /// The path on the host.
    pub source: &'s str,
    /// The path in the container.
    pub destination: &'s str,
    pub(crate) is_read_only: bool,
}

impl Spec {
    /// Reads the specification of a bundle.
    pub fn read(bundle: &Path) -> Result<Self, SpecError> {
        let path = bundle.join(FILE_NAME);
        // The caller's file, which may be a link.
        let original = fs::File::open(&path).and_then(|file| file::read_limited(&file, MAX_BYTES));
        let original = original.map_err(|source| SpecError::Io {
            action: "read",
            path: path.clone(),
            source,
        })?;
        match serde_json::from_slice(&original) {
            Ok(tree) => Ok(Self {
                path,
                original,
                tree,
            }),
            Err(error) => Err(SpecError::Malformed {
                path,
                what: error.to_string(),
            }),
        }
    }

    /// An annotation.
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.tree.get("annotations")?.get(name)?.as_str()
    }

    /// The names of all annotations.
    pub(crate) fn annotations(&self) -> impl Iterator<Item = &str> {
        let all = self.tree.get("annotations").and_then(Value::as_object);
        all.into_iter().flatten().map(|(name, _)| name.as_str())
    }

    /// A variable of the process's environment; the last entry counts, as for the process itself.
    pub(crate) fn environment(&self, name: &str) -> Option<&str> {
        let variables = list(&self.tree, "/process/env").iter().rev();
        variables
            .filter_map(|variable| variable.as_str()?.split_once('='))
            .find_map(|(found, value)| (found == name).then_some(value))
    }

    /// The devices. Skips malformed entries, which the low-level runtime refuses.
    pub(crate) fn devices(&self) -> impl Iterator<Item = Device> {
        let entries = list(&self.tree, "/linux/devices").iter();
        entries.filter_map(|entry| Device::deserialize(entry).ok())
    }

    /// The rules of the device cgroup.
    pub(crate) fn device_rules(&self) -> &[Value] {
        list(&self.tree, "/linux/resources/devices")
    }

    /// The bind mounts.
    pub fn binds(&self) -> impl Iterator<Item = Bind<'_>> {
        list(&self.tree, "/mounts").iter().filter_map(bind)
    }

    /// Where something is mounted, without "." and repeated slashes. A relative destination, which
    /// runc takes from the root, is made absolute.
    pub fn mount_points(&self) -> Vec<PathBuf> {
        let mounts = list(&self.tree, "/mounts").iter();
        let points = mounts.filter_map(|mount| mount.get("destination")?.as_str());
        let absolute = |point| Path::new("/").join(point).components().collect();
        points.map(absolute).collect()
    }

    /// The host name, if the container gets one.
    pub(crate) fn host_name(&self) -> Option<&str> {
        let name = self.tree.get("hostname")?.as_str()?;
        (!name.is_empty()).then_some(name)
    }

    /// The host's user that is root in the container's own user namespace; `None` if it has none,
    /// or joins another's.
    pub(crate) fn root_of_user_namespace(&self) -> Option<u32> {
        let mut mappings = list(&self.tree, "/linux/uidMappings").iter();
        let root = mappings.find(|mapping| mapping["containerID"] == 0)?;
        root["hostID"].as_u64()?.try_into().ok()
    }

    /// The namespaces that it joins, in place of one of its own: their types ("network", "pid") and
    /// their paths.
    pub(crate) fn joined_namespaces(&self) -> impl Iterator<Item = (&str, &str)> {
        let namespaces = list(&self.tree, "/linux/namespaces").iter();
        namespaces.filter_map(|namespace| {
            let path = namespace["path"].as_str().filter(|path| !path.is_empty())?;
            Some((namespace["type"].as_str()?, path))
        })
    }

    /// Whether it gets a new namespace of this type.
    pub(crate) fn has_own_namespace(&self, kind: &str) -> bool {
        let is_of_kind = |namespace: &&Value| namespace["type"] == kind;
        let mut namespaces = list(&self.tree, "/linux/namespaces").iter();
        let found = namespaces.find(is_of_kind);
        found.is_some_and(|namespace| namespace["path"].as_str().unwrap_or_default().is_empty())
    }

    /// The cgroup of the container, in the low-level runtime's notation.
    pub(crate) fn cgroups_path(&self) -> Option<&str> {
        self.tree.pointer("/linux/cgroupsPath")?.as_str()
    }

    /// The directory of the root file system; a relative path begins at the bundle.
    pub fn root(&self) -> Option<&str> {
        self.tree.pointer("/root/path")?.as_str()
    }

    /// The file's contents.
    pub(crate) fn tree(&self) -> &Value {
        &self.tree
    }

    /// The file's contents, to be changed.
    pub(crate) fn tree_mut(&mut self) -> &mut Value {
        &mut self.tree
    }

    /// Writes the changed contents into the bundle, whole or not at all.
    pub(crate) fn write(&self) -> Result<(), SpecError> {
        let text = serde_json::to_vec(&self.tree).map_err(io::Error::from);
        text.and_then(|text| replace(&self.path, &text))
            .map_err(|source| self.not_written(source))
    }

    /// Writes the original text again.
    pub(crate) fn put_back(&self) -> Result<(), SpecError> {
        replace(&self.path, &self.original).map_err(|source| self.not_written(source))
    }

    /// The file, and its original text.
    pub(crate) fn original(&self) -> (PathBuf, String) {
        let text = String::from_utf8_lossy(&self.original);
        (self.path.clone(), text.into_owned())
    }

    fn not_written(&self, source: io::Error) -> SpecError {
        SpecError::Io {
            action: "write",
            path: self.path.clone(),
            source,
        }
    }
}

/// Writes a text to a specification, whole or not at all.
pub(crate) fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    // If the path is a symbolic link, replace the file that it names.
    let path = fs::canonicalize(path)?;
    // The caller makes the specification again after a crash of the machine.
    file::replace(&path, text, Access::AsBefore, Durability::Volatile)
}

/// The list at a JSON pointer; empty if there is none.
fn list<'t>(tree: &'t Value, pointer: &str) -> &'t [Value] {
    let found = tree.pointer(pointer).and_then(Value::as_array);
    found.map_or(&[], Vec::as_slice)
}

/// Parses a bind mount. runc checks the options; crun and older engines check the type as well.
pub(crate) fn bind(mount: &Value) -> Option<Bind<'_>> {
    let options = list(mount, "/options").iter();
    let options: Vec<&str> = options.filter_map(Value::as_str).collect();
    let is_bind = mount.get("type").and_then(Value::as_str) == Some("bind")
        || options
            .iter()
            .any(|option| matches!(*option, "bind" | "rbind"));
    let text = |key| mount.get(key).and_then(Value::as_str);
    is_bind.then_some(Bind {
        source: text("source")?,
        destination: text("destination")?,
        is_read_only: options.contains(&"ro"),
    })
}

#[cfg(test)]
pub(crate) mod tests;
