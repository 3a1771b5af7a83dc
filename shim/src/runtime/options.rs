//! The options of requests: containerd's options of runc, for a task and for a checkpoint.

use std::path::Path;

use containerd_shim::api::Options;
use containerd_shim::bootstrap::any_is;
use containerd_shim::protos::protobuf::MessageFull;
use containerd_shim::protos::protobuf::well_known_types::any::Any;
use containerd_shim::protos::shim::oci::CheckpointOptions;
use serde::{Deserialize, Serialize};
use stasis_linux::file::{self, Access, Durability};

use crate::io_error::IoError;

/// The file in the bundle that keeps the task's runtime options for the command `delete`, which
/// runs after the shim has died. containerd's own shim keeps them in a file of this name.
const FILE: &str = "options.json";
/// The file from which containerd's own shim takes the low-level runtime's name when it cleans up.
const RUNTIME_FILE: &str = "runtime";

/// Why options cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OptionsError {
    /// The caller sent options of another type.
    #[error("options of type {given:?} are not {expected}")]
    Type {
        /// The type of the options that were sent.
        given: String,
        /// The type that the request takes.
        expected: String,
    },
    /// The caller sent an option of a checkpoint that this shim does not know.
    #[error("option {0} of CheckpointOptions is not known to this shim; nothing was changed")]
    Unknown(u32),
    /// The options are not valid protobuf.
    #[error("options of type {type_url:?} cannot be read: {reason}")]
    Decode {
        /// The type of the options.
        type_url: String,
        /// The parser's error.
        reason: String,
    },
    /// The options in the bundle are not valid JSON.
    #[error("{path} is no JSON: {source}")]
    Json {
        /// The file.
        path: String,
        /// The parser's error.
        source: serde_json::Error,
    },
    /// The file in the bundle cannot be read or written.
    #[error(transparent)]
    Io(#[from] IoError),
}

/// The runtime options of a Create request. Options of another type are an error: read as
/// runc's they would mean something else.
pub(crate) fn of_task(any: Option<&Any>) -> Result<Options, OptionsError> {
    decode(any)
}

/// The options of a Checkpoint request.
///
/// One that we do not know is refused: containerd 2.4 has a parent image, without which the dump
/// that its caller believes to have is another.
pub(crate) fn of_checkpoint(any: Option<&Any>) -> Result<CheckpointOptions, OptionsError> {
    let options: CheckpointOptions = decode(any)?;
    match options.special_fields.unknown_fields().iter().next() {
        Some((number, _)) => Err(OptionsError::Unknown(number)),
        None => Ok(options),
    }
}

fn decode<M: MessageFull>(any: Option<&Any>) -> Result<M, OptionsError> {
    let Some(any) = any.filter(|any| !any.type_url.is_empty()) else {
        return Ok(M::new());
    };
    if !any_is::<M>(any) {
        return Err(OptionsError::Type {
            given: any.type_url.clone(),
            expected: M::descriptor().full_name().to_owned(),
        });
    }
    M::parse_from_bytes(&any.value).map_err(|error| OptionsError::Decode {
        type_url: any.type_url.clone(),
        reason: error.to_string(),
    })
}

/// The file's contents. containerd's own shim leaves out what is not set, and a later one may have
/// options that we do not know.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Kept {
    no_pivot_root: bool,
    no_new_keyring: bool,
    shim_cgroup: String,
    io_uid: u32,
    io_gid: u32,
    binary_name: String,
    root: String,
    systemd_cgroup: bool,
    criu_image_path: String,
    criu_work_path: String,
    task_api_address: String,
    task_api_version: u32,
}

/// Writes the options into the bundle, and the low-level runtime's name into the file from which
/// containerd's own shim takes it, in case that is what cleans up after us. It knows nothing of our
/// settings: both get the name of the program that is used.
pub(crate) fn write(
    bundle: &Path,
    options: &Options,
    low_level: &Path,
) -> Result<(), OptionsError> {
    let path = bundle.join(FILE);
    let options = options.clone();
    let kept = Kept {
        no_pivot_root: options.no_pivot_root,
        no_new_keyring: options.no_new_keyring,
        shim_cgroup: options.shim_cgroup,
        io_uid: options.io_uid,
        io_gid: options.io_gid,
        binary_name: low_level.to_string_lossy().into_owned(),
        root: options.root,
        systemd_cgroup: options.systemd_cgroup,
        criu_image_path: options.criu_image_path,
        criu_work_path: options.criu_work_path,
        task_api_address: options.task_api_address,
        task_api_version: options.task_api_version,
    };
    let text = serde_json::to_vec(&kept).map_err(json_error(&path))?;
    write_private(&path, &text)?;
    Ok(write_private(
        &bundle.join(RUNTIME_FILE),
        kept.binary_name.as_bytes(),
    )?)
}

/// Whole or not at all: `delete` may read it after the shim was killed in the middle.
fn write_private(path: &Path, bytes: &[u8]) -> Result<(), IoError> {
    let written = file::replace(path, bytes, Access::Private, Durability::Volatile);
    written.map_err(IoError::cannot(format!("write {}", path.display())))
}

/// Reads the options from the bundle. A bundle without the file has the default options.
pub(crate) fn read(bundle: &Path) -> Result<Options, OptionsError> {
    let path = bundle.join(FILE);
    let text = match std::fs::read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Options::new()),
        other => other.map_err(IoError::cannot(format!("read {}", path.display())))?,
    };
    let kept: Kept = serde_json::from_slice(&text).map_err(json_error(&path))?;
    Ok(Options {
        no_pivot_root: kept.no_pivot_root,
        no_new_keyring: kept.no_new_keyring,
        shim_cgroup: kept.shim_cgroup,
        io_uid: kept.io_uid,
        io_gid: kept.io_gid,
        binary_name: kept.binary_name,
        root: kept.root,
        systemd_cgroup: kept.systemd_cgroup,
        criu_image_path: kept.criu_image_path,
        criu_work_path: kept.criu_work_path,
        task_api_address: kept.task_api_address,
        task_api_version: kept.task_api_version,
        ..Options::new()
    })
}

/// What is known without the options: the low-level runtime's program.
pub(crate) fn without_file(bundle: &Path) -> Options {
    Options {
        binary_name: std::fs::read_to_string(bundle.join(RUNTIME_FILE)).unwrap_or_default(),
        ..Options::new()
    }
}

fn json_error(path: &Path) -> impl FnOnce(serde_json::Error) -> OptionsError {
    let path = path.display().to_string();
    move |source| OptionsError::Json { path, source }
}

#[cfg(test)]
mod tests {
    use containerd_shim::protos::protobuf::Message;

    use super::*;

    fn packed(type_url: &str, options: &Options) -> Any {
        Any {
            type_url: type_url.to_owned(),
            value: options.write_to_bytes().unwrap(),
            ..Any::default()
        }
    }

    #[test]
    fn options_of_another_type_are_refused() {
        let options = Options {
            binary_name: "crun".to_owned(),
            ..Options::new()
        };
        let ours = packed("containerd.runc.v1.Options", &options);
        assert_eq!(of_task(Some(&ours)).unwrap(), options);
        let foreign = packed("runtimeoptions.v1.Options", &options);
        let error = of_task(Some(&foreign)).unwrap_err();
        assert!(error.to_string().contains("runtimeoptions.v1.Options"));
        assert_eq!(of_task(None).unwrap(), Options::new());
    }

    #[test]
    fn an_unknown_option_of_a_checkpoint_is_refused() {
        // Field 10, a string: the parent path of containerd 2.4.
        let any = |value: &[u8]| Any {
            type_url: "containerd.runc.v1.CheckpointOptions".to_owned(),
            value: value.to_vec(),
            ..Any::default()
        };
        assert!(of_checkpoint(Some(&any(&[]))).is_ok());
        let error = of_checkpoint(Some(&any(b"\x52\x02/p"))).unwrap_err();
        assert!(error.to_string().contains("option 10"), "{error}");
    }

    #[test]
    fn options_are_read_back_from_the_bundle() {
        let bundle = tempfile::tempdir().unwrap();
        assert_eq!(read(bundle.path()).unwrap(), Options::new());
        let options = Options {
            root: "/run/elsewhere".to_owned(),
            systemd_cgroup: true,
            ..Options::new()
        };
        write(bundle.path(), &options, Path::new("/opt/crun")).unwrap();
        let used = Options {
            binary_name: "/opt/crun".to_owned(),
            ..options
        };
        assert_eq!(read(bundle.path()).unwrap(), used);
    }

    #[test]
    fn options_of_containerds_own_shim_are_read() {
        let bundle = tempfile::tempdir().unwrap();
        let theirs = r#"{"binary_name":"crun","systemd_cgroup":true,"of_tomorrow":[1]}"#;
        std::fs::write(bundle.path().join(FILE), theirs).unwrap();
        let expected = Options {
            binary_name: "crun".to_owned(),
            systemd_cgroup: true,
            ..Options::new()
        };
        assert_eq!(read(bundle.path()).unwrap(), expected);
        write(bundle.path(), &expected, Path::new("crun")).unwrap();
        let named = std::fs::read_to_string(bundle.path().join(RUNTIME_FILE)).unwrap();
        assert_eq!(named, "crun");
    }
}
