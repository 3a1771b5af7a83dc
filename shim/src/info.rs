//! `-info`: describes the runtime to containerd before there is any container.

use std::io::{self, Write};
use std::sync::Arc;

use containerd_shim::protos::protobuf::well_known_types::any::Any;
use containerd_shim::protos::protobuf::{Message, MessageField};
use containerd_shim::protos::types::introspection::{RuntimeInfo, RuntimeVersion};

use crate::bootstrap::read_stdin;
use crate::error::{Error, Result};
use crate::oci_runtime::features;
use crate::options;
use crate::reaper::Reaper;

/// How containerd names the type of what `<runtime> features` prints (typeurl of runtime-spec).
const FEATURES: &str = "types.containerd.io/opencontainers/runtime-spec/1/features/Features";

/// Prints the description.
pub(crate) async fn info(reaper: &Arc<Reaper>) -> Result<()> {
    let input = read_stdin()?;
    let options = Any::parse_from_bytes(&input)
        .map_err(|error| Error::Invalid(format!("standard input holds no options: {error}")))?;
    let options = Some(options).filter(|options| !options.type_url.is_empty());
    let features = features(&options::of_task(options.as_ref())?, reaper).await;
    let info = RuntimeInfo {
        name: crate::RUNTIME.to_owned(),
        version: MessageField::some(RuntimeVersion {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..RuntimeVersion::default()
        }),
        options: MessageField::from_option(options),
        features: MessageField::from_option(features.map(|value| Any {
            type_url: FEATURES.to_owned(),
            value,
            ..Any::default()
        })),
        ..RuntimeInfo::default()
    };
    let bytes = info
        .write_to_bytes()
        .map_err(|error| Error::Invalid(format!("cannot encode the answer: {error}")))?;
    io::stdout()
        .write_all(&bytes)
        .map_err(Error::io("answer containerd"))
}
