//! Removed options, each with its successor.

use std::ffi::OsString;
use std::path::Path;

use clap::Error;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// A verb, or a program, its options, and what to call instead.
type Gone = (&'static str, &'static [&'static str], &'static str);

const GONE: [Gone; 5] = [
    (
        "metrics",
        &["--listen"],
        "stasis serves no page any more: let the node exporter read what `stasis metrics \
         --textfile FILE` writes (stasis-metrics.timer)",
    ),
    (
        "check",
        &["--image"],
        "`stasis verify --here IMAGE` says whether this machine can restore an image, and `stasis \
         verify IMAGE` whether it is whole",
    ),
    (
        "check",
        &["--machine"],
        "`stasis doctor` reports what this machine can do, and `stasis doctor --self-test` tries \
         the driver alone",
    ),
    (
        "cuda-checkpoint",
        &["--tree"],
        "--container names a container, whose processes are moved together; or name each process \
         by --pid",
    ),
    (
        "inspect",
        &["--ps-tree", "--files", "--sockets", "--mounts", "--stats"],
        "`stasis inspect --all` shows what stasis has written, and crit and checkpointctl read \
         CRIU's own files",
    ),
];

/// A removed verb, and what to call instead.
const GONE_VERB: (&str, &str) = (
    "memory",
    "`stasis images` lists GPU contents with their images, `stasis verify` reads them, and `stasis gc` \
     finds those whose image cannot be found",
);

/// Adds the successor to the error of a command line with a removed option or verb.
#[must_use]
pub fn with_successor(mut error: Error, words: impl Iterator<Item = OsString>) -> Error {
    let words: Vec<OsString> = words.collect();
    if let Some(ContextValue::String(verb)) = error.get(ContextKind::InvalidSubcommand)
        && verb == GONE_VERB.0
    {
        let successor = ContextValue::StyledStrs(vec![GONE_VERB.1.into()]);
        error.insert(ContextKind::Suggested, successor);
        return error;
    }
    let unknown = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(option))) => option.clone(),
        _ => return error,
    };
    let is_it = |(verb, options, _): &&Gone| {
        options.contains(&unknown.as_str())
            && words.iter().any(|word| Path::new(word).ends_with(verb))
    };
    if let Some((.., successor)) = GONE.iter().find(is_it) {
        let successor = ContextValue::StyledStrs(vec![(*successor).into()]);
        error.insert(ContextKind::Suggested, successor);
    }
    error
}
