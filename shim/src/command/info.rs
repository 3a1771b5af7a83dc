//! `-info`: describes the runtime to containerd, which asks before there is any container.

use std::path::PathBuf;
use std::sync::Arc;

use containerd_shim::protos::protobuf::well_known_types::any::Any;
use containerd_shim::protos::protobuf::{Message, MessageField};
use containerd_shim::protos::types::introspection::{RuntimeInfo, RuntimeVersion};

use crate::child::reaper::Reaper;
use crate::command::answer;
use crate::command::bootstrap::read_stdin;
use crate::containerd::runtime_of;
use crate::error::{Error, Result};
use crate::runtime::features;
use crate::runtime::options;

/// containerd's type for the output of `<runtime> features` (typeurl of runtime-spec).
const FEATURES: &str = "types.containerd.io/opencontainers/runtime-spec/1/features/Features";

/// Prints the description.
pub(crate) async fn info(reaper: &Arc<Reaper>) -> Result<()> {
    let input = read_stdin()?;
    let options = Any::parse_from_bytes(&input)
        .map_err(|error| Error::Other(format!("standard input holds no options: {error}")))?;
    let options = Some(options).filter(|options| !options.type_url.is_empty());
    let features = features(&options::decode(options.as_ref())?, reaper).await;
    let program = std::env::args_os().next().map(PathBuf::from);
    let program = program.unwrap_or_default();
    let info = RuntimeInfo {
        name: runtime_of(&program),
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
    answer::write(&info.write_to_bytes()?)
}
