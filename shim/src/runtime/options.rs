//! The options of requests: containerd's options of runc, for a task and for a checkpoint.

use std::path::Path;

use containerd_shim::api::Options;
use containerd_shim::bootstrap::any_is;
use containerd_shim::protos::protobuf::MessageFull;
use containerd_shim::protos::protobuf::well_known_types::any::Any;
use containerd_shim::protos::shim::oci::CheckpointOptions;
use containerd_shim::util::JsonOptions;

use crate::io_error::IoError;

/// The file in the bundle that keeps the task's runtime options for the command `delete`, which
/// runs after the shim has died. containerd's own shim keeps them in a file of this name.
const FILE: &str = "options.json";

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
pub(crate) fn of_checkpoint(any: Option<&Any>) -> Result<CheckpointOptions, OptionsError> {
    decode(any)
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

/// Writes the options into the bundle.
pub(crate) fn write(bundle: &Path, options: &Options) -> Result<(), OptionsError> {
    let path = bundle.join(FILE);
    let text =
        serde_json::to_vec(&JsonOptions::from(options.clone())).map_err(json_error(&path))?;
    Ok(
        std::fs::write(&path, text)
            .map_err(IoError::cannot(format!("write {}", path.display())))?,
    )
}

/// Reads the options from the bundle. A bundle without the file has the default options.
pub(crate) fn read(bundle: &Path) -> Result<Options, OptionsError> {
    let path = bundle.join(FILE);
    let text = match std::fs::read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Options::new()),
        other => other.map_err(IoError::cannot(format!("read {}", path.display())))?,
    };
    let options: JsonOptions = serde_json::from_slice(&text).map_err(json_error(&path))?;
    Ok(options.into())
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
    fn options_are_read_back_from_the_bundle() {
        let bundle = tempfile::tempdir().unwrap();
        assert_eq!(read(bundle.path()).unwrap(), Options::new());
        let options = Options {
            root: "/run/elsewhere".to_owned(),
            systemd_cgroup: true,
            ..Options::new()
        };
        write(bundle.path(), &options).unwrap();
        assert_eq!(read(bundle.path()).unwrap(), options);
    }
}
