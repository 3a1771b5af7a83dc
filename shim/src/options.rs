//! What callers may set: containerd's options for runc, for a task and for a checkpoint.

use std::path::Path;

use containerd_shim::api::Options;
use containerd_shim::bootstrap::any_is;
use containerd_shim::protos::protobuf::MessageFull;
use containerd_shim::protos::protobuf::well_known_types::any::Any;
use containerd_shim::protos::shim::oci::CheckpointOptions;
use containerd_shim::util::JsonOptions;

use crate::error::{Error, Result};

/// Where the runtime options of a task are kept in its bundle, for `delete` of a dead shim: a file
/// and a format that containerd's own shim has too.
const FILE: &str = "options.json";

/// The runtime options of a Create request. Options of another type are an error: read as runc's
/// they would mean something else.
pub(crate) fn of_task(any: Option<&Any>) -> Result<Options> {
    decode(any)
}

/// The options of a Checkpoint request.
pub(crate) fn of_checkpoint(any: Option<&Any>) -> Result<CheckpointOptions> {
    decode(any)
}

fn decode<M: MessageFull>(any: Option<&Any>) -> Result<M> {
    let Some(any) = any.filter(|any| !any.type_url.is_empty()) else {
        return Ok(M::new());
    };
    if !any_is::<M>(any) {
        return Err(Error::Invalid(format!(
            "options of type {:?} are not {}",
            any.type_url,
            M::descriptor().full_name()
        )));
    }
    M::parse_from_bytes(&any.value).map_err(|error| {
        Error::Invalid(format!(
            "options of type {:?} cannot be read: {error}",
            any.type_url
        ))
    })
}

/// Keeps them in the bundle.
pub(crate) fn write(bundle: &Path, options: &Options) -> Result<()> {
    let path = bundle.join(FILE);
    let text = serde_json::to_vec(&JsonOptions::from(options.clone()))
        .map_err(|error| Error::Invalid(error.to_string()))?;
    std::fs::write(&path, text).map_err(Error::io(format!("write {}", path.display())))
}

/// Reads them back; a bundle without has the default ones.
pub(crate) fn read(bundle: &Path) -> Result<Options> {
    let path = bundle.join(FILE);
    let text = match std::fs::read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Options::new()),
        other => other.map_err(Error::io(format!("read {}", path.display())))?,
    };
    let options: JsonOptions = serde_json::from_slice(&text)
        .map_err(|error| Error::Invalid(format!("{} is no JSON: {error}", path.display())))?;
    Ok(options.into())
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
