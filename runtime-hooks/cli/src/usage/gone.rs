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
        "stasis serves no page any more: let the node exporter read the file of `stasis metrics \
         --textfile FILE` (stasis-metrics.timer)",
    ),
    (
        "check",
        &["--image"],
        "`stasis verify --here IMAGE` shows whether this machine can restore an image, and `stasis \
         verify IMAGE` whether it is whole",
    ),
    (
        "check",
        &["--machine"],
        "`stasis doctor` reports on this machine, and `stasis doctor --self-test` tries the driver alone",
    ),
    (
        "cuda-checkpoint",
        &["--tree"],
        "--container names a container, whose processes are moved together; --pid names one process",
    ),
    (
        "inspect",
        &["--ps-tree", "--files", "--sockets", "--mounts", "--stats"],
        "`stasis inspect --all` shows the documents of stasis; crit and checkpointctl read CRIU's \
         own files",
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
    if let Some(successor) = successor(&error, words) {
        // In place of clap's neighbour by its letters.
        error.remove(ContextKind::SuggestedArg);
        error.remove(ContextKind::SuggestedSubcommand);
        let successor = ContextValue::StyledStrs(vec![successor.into()]);
        error.insert(ContextKind::Suggested, successor);
    }
    error
}

/// Finds what to call in place of a removed option or verb.
pub(super) fn successor(
    error: &Error,
    words: impl Iterator<Item = OsString>,
) -> Option<&'static str> {
    if let Some(ContextValue::String(verb)) = error.get(ContextKind::InvalidSubcommand)
        && verb == GONE_VERB.0
    {
        return Some(GONE_VERB.1);
    }
    let unknown = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(option))) => option,
        _ => return None,
    };
    let words: Vec<OsString> = words.collect();
    let is_it = |(verb, options, _): &&Gone| {
        options.contains(&unknown.as_str())
            && words.iter().any(|word| Path::new(word).ends_with(verb))
    };
    GONE.iter().find(is_it).map(|(.., successor)| *successor)
}
