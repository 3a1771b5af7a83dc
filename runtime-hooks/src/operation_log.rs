//! One line for each operation in `operations.log`: when, what, how it went, how long each phase
//! took. Callers keep neither the timings nor, in most cases, the whole error.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::SystemTime;

use serde::Serialize;
use stasis_memory_store::Report;

use crate::engine::{Engine, rfc3339};
use crate::error::{Error, Verb};
use crate::timeline::{Phase, Timeline};

/// Its name below the log directory.
pub(crate) const FILE_NAME: &str = "operations.log";

#[derive(Serialize)]
struct Line<'a> {
    time: String,
    operation: String,
    container: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    notes: &'a [String],
    phases: &'a [Phase],
    #[serde(skip_serializing_if = "Option::is_none")]
    bulk_memory: Option<&'a Report>,
}

/// Appends the line of an operation. That it cannot be written changes nothing for the operation.
pub(crate) fn write(
    engine: &Engine,
    verb: Verb,
    container: &str,
    timeline: &Timeline<'_>,
    error: Option<&Error>,
) {
    let line = Line {
        time: engine.began_text(),
        operation: verb.to_string(),
        container,
        error: error.map(ToString::to_string),
        notes: timeline.notes(),
        phases: timeline.phases(),
        bulk_memory: timeline.bulk_memory(),
    };
    let _ = append(&engine.settings.paths.log_dir, &line);
}

/// Appends the line of what was done for an operation after its end, from `began` on.
pub(crate) fn write_afterwards(
    log_dir: &Path,
    operation: &str,
    container: &str,
    began: SystemTime,
    timeline: &Timeline<'_>,
    error: Option<String>,
) {
    let line = Line {
        time: rfc3339(began),
        operation: operation.to_owned(),
        container,
        error,
        notes: timeline.notes(),
        phases: timeline.phases(),
        bulk_memory: timeline.bulk_memory(),
    };
    let _ = append(log_dir, &line);
}

fn append(directory: &Path, line: &Line<'_>) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    let mut options = OpenOptions::new();
    // One write to a file opened for appending: lines of concurrent operations do not mix.
    options
        .append(true)
        .create(true)
        .mode(0o600)
        .open(directory.join(FILE_NAME))?
        .write_all(&text)
}
