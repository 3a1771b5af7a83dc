//! The new container's word: `config.json` in its bundle.
//!
//! It comes from the caller, who may do with the container what it says; an image never has a say
//! in it. It is kept as the JSON that it is, since it is written again where a restore on this
//! machine needs another device number or library file, and nothing unknown may be lost then.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::entry;

/// Its name in a bundle (OCI runtime specification, "bundle").
const FILE_NAME: &str = "config.json";
/// runc has no limit; real ones have some ten KiB.
const MAX_BYTES: u64 = 16 << 20;

/// A bundle's `config.json`, as it was read and as it shall be.
#[derive(Debug)]
pub(crate) struct Spec {
    path: PathBuf,
    original: Vec<u8>,
    tree: Value,
}

/// Why a bundle's `config.json` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// It cannot be accessed.
    #[error("cannot {action} {path}")]
    Io {
        /// "read" or "write".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// Larger than any real one.
    #[error("{path} has more than {MAX_BYTES} bytes")]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// Not JSON.
    #[error("cannot make sense of {path}: {what}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
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
pub(crate) struct Bind<'s> {
    pub(crate) source: &'s str,
    pub(crate) destination: &'s str,
}

impl Spec {
    /// Reads the specification of a bundle.
    ///
    /// # Errors
    /// [`SpecError`].
    pub(crate) fn read(bundle: &Path) -> Result<Self, SpecError> {
        let path = bundle.join(FILE_NAME);
        let original = read_limited(&path).map_err(|source| SpecError::Io {
            action: "read",
            path: path.clone(),
            source,
        })?;
        if original.len() as u64 > MAX_BYTES {
            return Err(SpecError::TooLarge { path });
        }
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
    pub(crate) fn annotation(&self, name: &str) -> Option<&str> {
        self.tree.get("annotations")?.get(name)?.as_str()
    }

    /// A variable of the process's environment; the last word counts, as for the process itself.
    pub(crate) fn environment(&self, name: &str) -> Option<&str> {
        let variables = list(&self.tree, "/process/env").iter().rev();
        variables
            .filter_map(|variable| variable.as_str()?.split_once('='))
            .find_map(|(found, value)| (found == name).then_some(value))
    }

    /// The devices; what is no device is the low-level runtime's to refuse.
    pub(crate) fn devices(&self) -> impl Iterator<Item = Device> {
        let entries = list(&self.tree, "/linux/devices").iter();
        entries.filter_map(|entry| Device::deserialize(entry).ok())
    }

    /// The rules of the device cgroup.
    pub(crate) fn device_rules(&self) -> &[Value] {
        list(&self.tree, "/linux/resources/devices")
    }

    /// The bind mounts.
    pub(crate) fn binds(&self) -> impl Iterator<Item = Bind<'_>> {
        list(&self.tree, "/mounts").iter().filter_map(bind)
    }

    /// The cgroup that the container is to be in, as the low-level runtime takes it.
    pub(crate) fn cgroups_path(&self) -> Option<&str> {
        self.tree.pointer("/linux/cgroupsPath")?.as_str()
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
    ///
    /// # Errors
    /// [`SpecError::Io`].
    pub(crate) fn write(&self) -> Result<(), SpecError> {
        self.write_tree(&self.tree)
    }

    /// Writes the changed contents with one of its values as it shall stay.
    ///
    /// # Errors
    /// [`SpecError::Io`].
    pub(crate) fn write_with(&self, pointer: &str, value: &Value) -> Result<(), SpecError> {
        let mut tree = self.tree.clone();
        if let Some(place) = tree.pointer_mut(pointer) {
            place.clone_from(value);
        }
        self.write_tree(&tree)
    }

    fn write_tree(&self, tree: &Value) -> Result<(), SpecError> {
        let text = serde_json::to_vec(tree).map_err(io::Error::from);
        text.and_then(|text| self.replace(&text))
            .map_err(|source| self.not_written(source))
    }

    /// Writes what was read.
    ///
    /// # Errors
    /// [`SpecError::Io`].
    pub(crate) fn put_back(&self) -> Result<(), SpecError> {
        self.replace(&self.original)
            .map_err(|source| self.not_written(source))
    }

    fn replace(&self, text: &[u8]) -> io::Result<()> {
        // The link, if it is one, stays one.
        let path = fs::canonicalize(&self.path)?;
        let before = fs::metadata(&path)?;
        let staged = path.with_file_name(".config.json.stasis");
        entry::remove(&staged)?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&staged)?;
        let written = file
            .write_all(text)
            .and_then(|()| fchown(&file, Some(before.uid()), Some(before.gid())))
            .and_then(|()| file.set_permissions(fs::Permissions::from_mode(before.mode() & 0o7777)))
            .and_then(|()| fs::rename(&staged, &path));
        if written.is_err() {
            let _ = fs::remove_file(&staged);
        }
        written
    }

    fn not_written(&self, source: io::Error) -> SpecError {
        SpecError::Io {
            action: "write",
            path: self.path.clone(),
            source,
        }
    }
}

fn read_limited(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    fs::File::open(path)?
        .take(MAX_BYTES + 1)
        .read_to_end(&mut text)?;
    Ok(text)
}

/// The list at a JSON pointer; empty if there is none.
fn list<'t>(tree: &'t Value, pointer: &str) -> &'t [Value] {
    let found = tree.pointer(pointer).and_then(Value::as_array);
    found.map_or(&[], Vec::as_slice)
}

/// A mount as a bind mount. runc goes by the options, crun and older engines by the type, too.
pub(crate) fn bind(mount: &Value) -> Option<Bind<'_>> {
    let options = list(mount, "/options").iter();
    let is_bind = mount.get("type").and_then(Value::as_str) == Some("bind")
        || options
            .filter_map(Value::as_str)
            .any(|option| matches!(option, "bind" | "rbind"));
    let text = |key| mount.get(key).and_then(Value::as_str);
    is_bind.then_some(Bind {
        source: text("source")?,
        destination: text("destination")?,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::json;

    /// A specification with these contents that is in no bundle.
    pub(crate) fn spec(tree: Value) -> Spec {
        Spec {
            path: "/nonexistent/config.json".into(),
            original: Vec::new(),
            tree,
        }
    }

    #[test]
    fn what_is_not_there_is_empty() {
        let empty = spec(json!({}));
        assert_eq!(empty.devices().count(), 0);
        assert_eq!(empty.binds().count(), 0);
        assert_eq!(empty.annotation("a"), None);
        assert_eq!(empty.environment("A"), None);
        assert!(empty.device_rules().is_empty());
    }

    #[test]
    fn what_is_there_is_found() {
        let spec = spec(json!({
            "annotations": {"io.stasis.gpu-map": "x"},
            "process": {"env": ["A=1", "B=2=3", "A=4"]},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/a", "source": "/b", "options": ["ro", "rbind"]},
                {"destination": "/c", "source": "/d", "type": "bind"},
            ],
            "linux": {"devices": [
                {"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0, "fileMode": 438},
                {"path": 5},
            ]},
        }));
        assert_eq!(spec.annotation("io.stasis.gpu-map"), Some("x"));
        assert_eq!(spec.environment("A"), Some("4"));
        assert_eq!(spec.environment("B"), Some("2=3"));
        let sources: Vec<_> = spec.binds().map(|bind| bind.source).collect();
        assert_eq!(sources, ["/b", "/d"]);
        let devices: Vec<_> = spec.devices().collect();
        assert_eq!(devices.len(), 1);
        assert_eq!((devices[0].major, devices[0].mode), (195, Some(0o666)));
    }

    #[test]
    fn it_is_written_with_all_that_is_unknown_and_put_back_to_the_byte() {
        let bundle = tempfile::tempdir().unwrap();
        let path = bundle.path().join(FILE_NAME);
        let original = "{ \"ociVersion\":\"9.9\",  \"new\": {\"big\": 18446744073709551615} }\n";
        fs::write(&path, original).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let mut spec = Spec::read(bundle.path()).unwrap();
        spec.tree_mut()["linux"] = json!({"devices": []});
        spec.write().unwrap();
        let written: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(written["new"]["big"], json!(u64::MAX));
        assert_eq!(written["linux"], json!({"devices": []}));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
        spec.put_back().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), original);
        assert_eq!(fs::read_dir(bundle.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let bundle = tempfile::tempdir().unwrap();
        let missing = Spec::read(bundle.path()).unwrap_err().to_string();
        assert!(missing.contains("config.json"), "{missing}");
        fs::write(bundle.path().join(FILE_NAME), "{").unwrap();
        let error = Spec::read(bundle.path()).unwrap_err();
        assert!(matches!(error, SpecError::Malformed { .. }), "{error}");
    }
}
