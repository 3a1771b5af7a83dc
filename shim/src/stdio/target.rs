//! The target of a stream as containerd's callers write it: the path of a fifo, or a URI.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use percent_encoding::percent_decode_str;
use tokio::io::{AsyncRead, AsyncWriteExt};

use crate::error::{Error, Result};

/// The target of an output stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// A fifo that containerd or its client made.
    Fifo(String),
    /// A file that output is appended to.
    File(PathBuf),
    /// A program that reads the output.
    Logger(LoggerUri),
}

/// `binary://` and `binary-v2://`: a program and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LoggerUri {
    /// The program.
    pub(super) program: PathBuf,
    /// Its arguments: each name of the query with its value.
    pub(super) arguments: Vec<String>,
    /// How it says that it is ready.
    pub(super) ready: Ready,
}

/// How a logger says that it is ready, on descriptor 5.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ready {
    /// It writes a byte or closes it. That it has ended looks the same.
    ByteOrEnd,
    /// It writes a byte (`binary-v2`, containerd 2.2).
    Byte,
}

impl Target {
    /// Parses the caller's text. Without a scheme it is a path: of a regular file, which is
    /// appended to as containerd's own shim does, else of a fifo, also if it is empty.
    pub(super) fn parse(wanted: &str) -> Result<Self> {
        let Some((scheme, rest)) = wanted.split_once("://") else {
            return Ok(match fs::metadata(wanted) {
                Ok(found) if found.is_file() => Target::File(wanted.into()),
                _ => Target::Fifo(wanted.to_owned()),
            });
        };
        match scheme {
            "fifo" => Ok(Target::Fifo(path(rest)?)),
            "file" => Ok(Target::File(path(rest)?.into())),
            "binary" => logger(rest, Ready::ByteOrEnd),
            "binary-v2" => logger(rest, Ready::Byte),
            _ => Err(Error::Invalid(format!(
                "output to {wanted:?}: the scheme is none of fifo, file, binary and binary-v2"
            ))),
        }
    }
}

fn logger(rest: &str, ready: Ready) -> Result<Target> {
    let (program, query) = rest.split_once('?').unwrap_or((rest, ""));
    Ok(Target::Logger(LoggerUri {
        program: path(program)?.into(),
        arguments: arguments(query),
        ready,
    }))
}

fn path(encoded: &str) -> Result<String> {
    let path = percent_decode_str(encoded).decode_utf8();
    match path {
        Ok(path) if Path::new(&*path).is_absolute() => Ok(path.into_owned()),
        _ => Err(Error::Invalid(format!(
            "output to {encoded:?}: this is no absolute path"
        ))),
    }
}

/// A name without a value has an empty one (containerd pkg/process NewBinaryCmd).
fn arguments(query: &str) -> Vec<String> {
    form_urlencoded::parse(query.as_bytes())
        .flat_map(|(name, value)| [name.into_owned(), value.into_owned()])
        .collect()
}

/// Opens a file for appending, and makes the directories above it.
pub(super) fn open_for_appending(path: &Path) -> Result<File> {
    let opened = path
        .parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| {
            let mut options = OpenOptions::new();
            options.append(true).create(true).mode(0o644).open(path)
        });
    opened.map_err(Error::cannot(format!("open {} for output", path.display())))
}

/// Copies a stream to the end of a file.
pub(super) async fn append(mut from: impl AsyncRead + Unpin, file: File) {
    let mut to = tokio::fs::File::from_std(file);
    let copied = tokio::io::copy(&mut from, &mut to).await;
    let flushed = to.flush().await;
    if let Err(error) = copied.and(flushed) {
        log::error!("output is lost: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_path_is_a_fifo() {
        let fifo = |path: &str| Target::Fifo(path.to_owned());
        assert_eq!(Target::parse("/run/x").unwrap(), fifo("/run/x"));
        assert_eq!(Target::parse("fifo:///run/x").unwrap(), fifo("/run/x"));
        assert_eq!(Target::parse("").unwrap(), fifo(""));
    }

    #[test]
    fn a_logger_gets_its_query_as_arguments() {
        let target = Target::parse("binary:///usr/bin/log%20ger?--dir=/var/a%2Fb&-v").unwrap();
        let uri = LoggerUri {
            program: "/usr/bin/log ger".into(),
            arguments: ["--dir", "/var/a/b", "-v", ""].map(str::to_owned).to_vec(),
            ready: Ready::ByteOrEnd,
        };
        assert_eq!(target, Target::Logger(uri));
        let target = Target::parse("binary-v2:///usr/bin/logger").unwrap();
        assert!(matches!(target, Target::Logger(uri) if uri.ready == Ready::Byte));
    }

    #[test]
    fn other_schemes_and_relative_paths_are_refused() {
        for wanted in ["npipe://x", "file://relative", "binary://"] {
            let error = Target::parse(wanted).unwrap_err();
            assert!(matches!(error, Error::Invalid(_)), "{wanted}");
        }
    }
}
