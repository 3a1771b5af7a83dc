//! The options of requests: containerd's options of runc, for a task and for a checkpoint.

use std::path::Path;

use containerd_shim::api::Options;
use containerd_shim::bootstrap::any_is;
use containerd_shim::protos::protobuf::MessageFull;
use containerd_shim::protos::protobuf::well_known_types::any::Any;
use containerd_shim::protos::shim::oci::CheckpointOptions;
use containerd_shim::util::JsonOptions;
use serde_json::{Map, Value};
use stasis_linux::file::{self, Access, Durability};

use crate::error::{Error, Result};

/// The file in the bundle that keeps the task's runtime options for the command `delete`, which
/// runs after the shim has died. containerd's own shim keeps them in a file of this name.
const FILE: &str = "options.json";
/// The file from which containerd's own shim takes the low-level runtime's name when it cleans up.
const RUNTIME_FILE: &str = "runtime";

/// The options of a Checkpoint request.
///
/// An unknown option is refused: containerd 2.4 has a parent image, without which the dump is
/// another one than its caller believes to have.
pub(crate) fn of_checkpoint(any: Option<&Any>) -> Result<CheckpointOptions> {
    let options: CheckpointOptions = decode(any)?;
    match options.special_fields.unknown_fields().iter().next() {
        Some((number, _)) => Err(Error::Invalid(format!(
            "option {number} of CheckpointOptions is not known to this shim; nothing was changed"
        ))),
        None => Ok(options),
    }
}

/// Reads the options of a request. Options of another type are an error: read as runc's they would
/// mean something else.
pub(crate) fn decode<M: MessageFull>(any: Option<&Any>) -> Result<M> {
    let Some(any) = any.filter(|any| !any.type_url.is_empty()) else {
        return Ok(M::new());
    };
    let given = &any.type_url;
    if !any_is::<M>(any) {
        let descriptor = M::descriptor();
        let expected = descriptor.full_name();
        let text = format!("options of type {given:?} are not {expected}");
        return Err(Error::Invalid(text));
    }
    M::parse_from_bytes(&any.value).map_err(|error| {
        Error::Invalid(format!("options of type {given:?} cannot be read: {error}"))
    })
}

/// Writes the options into the bundle, and the low-level runtime's name into the file from which
/// containerd's own shim takes it, in case that shim cleans up after us. It does not know our
/// settings: both get the name of the program that is used.
pub(crate) fn write(bundle: &Path, options: &Options, low_level: &Path) -> Result<()> {
    let path = bundle.join(FILE);
    let mut kept = JsonOptions::from(options.clone());
    kept.binary_name = low_level.to_string_lossy().into_owned();
    let text = serde_json::to_vec(&kept).map_err(no_json(&path))?;
    write_private(&path, &text)?;
    write_private(&bundle.join(RUNTIME_FILE), kept.binary_name.as_bytes())
}

/// Writes a file whole or not at all: `delete` may read it after the shim was killed meanwhile.
fn write_private(path: &Path, bytes: &[u8]) -> Result<()> {
    let written = file::replace(path, bytes, Access::Private, Durability::Volatile);
    written.map_err(Error::cannot(format!("write {}", path.display())))
}

/// Reads the options from the bundle. A bundle without the file has the default options.
/// containerd's own shim leaves out options that are not set, and a later one may have options that
/// we do not know.
pub(crate) fn read(bundle: &Path) -> Result<Options> {
    let path = bundle.join(FILE);
    let text = match std::fs::read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Options::new()),
        other => other.map_err(Error::cannot(format!("read {}", path.display())))?,
    };
    let parse = || -> serde_json::Result<JsonOptions> {
        let given: Map<String, Value> = serde_json::from_slice(&text)?;
        let mut options = serde_json::to_value(JsonOptions::from(Options::new()))?;
        for (name, value) in given {
            if let Some(option) = options.get_mut(name) {
                *option = value;
            }
        }
        serde_json::from_value(options)
    };
    parse().map(Options::from).map_err(no_json(&path))
}

/// Returns the options that are known without the file: the low-level runtime's program.
pub(crate) fn without_file(bundle: &Path) -> Options {
    Options {
        binary_name: std::fs::read_to_string(bundle.join(RUNTIME_FILE)).unwrap_or_default(),
        ..Options::new()
    }
}

fn no_json(path: &Path) -> impl FnOnce(serde_json::Error) -> Error {
    move |error| Error::Invalid(format!("{} is no JSON: {error}", path.display()))
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
        assert_eq!(decode::<Options>(Some(&ours)).unwrap(), options);
        let foreign = packed("runtimeoptions.v1.Options", &options);
        let error = decode::<Options>(Some(&foreign)).unwrap_err();
        assert!(error.to_string().contains("runtimeoptions.v1.Options"));
        assert_eq!(decode::<Options>(None).unwrap(), Options::new());
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
