//! One line for each operation in `operations.log`: time, operation, result, and how long each
//! phase took. Callers keep neither the timings nor, in most cases, the whole error.

mod distribution;
mod totals;

use std::io::{self, Write};
use std::path::Path;
use std::time::SystemTime;

use serde::Serialize;
use stasis_host::caller::Caller;
use stasis_host::file_lock::{Sharing, Tried, try_lock};
use stasis_host::time::rfc3339;
use stasis_linux::directory::{Directory, Earlier};
use stasis_linux::escape::escaped;
use stasis_memory_store::StoreStatistics;

use crate::context::Context;
use crate::error::kind::Diagnosis;
use crate::error::{Error, Refusal};
use crate::operation::timeline::{Phase, Stop, Timeline};
use crate::operation::verb::Verb;

pub use distribution::{BYTES, Distribution, SECONDS};
pub use totals::{Total, Totals};

/// The file's name in the log directory.
pub const FILE_NAME: &str = "operations.log";
/// The file before it, and how long one may become: some hundred thousand operations.
pub const EARLIER: &str = "operations.log.1";
const MOST_BYTES: u64 = 64 << 20;

#[derive(Serialize)]
struct Line<'a> {
    time: String,
    operation: &'a str,
    container: &'a str,
    /// Where it writes the image, or reads it from.
    #[serde(skip_serializing_if = "Option::is_none")]
    image_path: Option<&'a Path>,
    /// The caller of the process that writes the line; a keeper's caller is its operation.
    caller: &'static Caller,
    #[serde(flatten)]
    failure: Option<Failed>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    notes: &'a [String],
    phases: &'a [Phase],
    #[serde(flatten)]
    stop: Stop,
    /// Bytes of GPU contents that many threads have copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    shared_out_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bulk_memory: Option<&'a StoreStatistics>,
}

/// The part of a line about a failure.
#[derive(Debug, Serialize)]
pub struct Failed {
    error: String,
    #[serde(flatten)]
    diagnosis: Diagnosis,
}

/// Appends the line of an operation. An error in writing it does not fail the operation.
pub fn write(
    context: &Context,
    verb: Verb,
    container: &str,
    timeline: &Timeline<'_>,
    error: Option<&Error>,
) {
    let failure = error.map(|error| Failed::new(&error.to_string(), error.diagnosis()));
    let log_dir = &context.settings.paths.log_dir;
    let (operation, began) = (verb.to_string(), context.began);
    write_afterwards(log_dir, &operation, container, began, timeline, failure);
}

/// Makes the error of a refused operation, and appends its line.
pub fn refused(
    context: &Context,
    verb: Verb,
    container: &str,
    reason: impl Into<Refusal>,
) -> Error {
    let error = Error::refused(verb, container, reason);
    let timeline = Timeline::default();
    write(context, verb, container, &timeline, Some(&error));
    error
}

/// Appends the line of work that began at `began`, after the end of its operation.
pub fn write_afterwards(
    log_dir: &Path,
    operation: &str,
    container: &str,
    began: SystemTime,
    timeline: &Timeline<'_>,
    failure: Option<Failed>,
) {
    let line = Line {
        time: rfc3339(began),
        operation,
        container,
        image_path: timeline.image.as_deref(),
        caller: Caller::of_this_process(),
        failure,
        notes: timeline.notes(),
        phases: timeline.phases(),
        stop: timeline.stop,
        shared_out_bytes: timeline.shared_out,
        bulk_memory: timeline.bulk_memory.as_ref(),
    };
    let _ = append(log_dir, &line);
}

impl Failed {
    /// Control characters of the message are escaped.
    pub fn new(error: &str, diagnosis: Diagnosis) -> Self {
        let error = escaped(error.as_bytes());
        Self { error, diagnosis }
    }
}

fn append(log_dir: &Path, line: &Line<'_>) -> io::Result<()> {
    let directory = Directory::make(log_dir, 0o700)?;
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    // A log that is too long is no reason to lose this line.
    let _ = put_aside(log_dir, &directory, MOST_BYTES);
    // In one write: lines of concurrent operations do not mix.
    directory
        .log(FILE_NAME, Earlier::Continued)?
        .write_all(&text)
}

/// Begins a new file once the old one is longer than this; the one before that is replaced, once
/// what it adds up to is kept.
fn put_aside(log_dir: &Path, directory: &Directory, most_bytes: u64) -> io::Result<()> {
    let is_too_long = || {
        let log = directory.log(FILE_NAME, Earlier::Continued)?;
        Ok::<_, io::Error>(log.metadata()?.len() > most_bytes)
    };
    if !is_too_long()? {
        return Ok(());
    }
    // If two processes find the log too long, the second must not put the new one aside.
    if try_lock(directory.file(), Sharing::Exclusive)? == Tried::Locked && is_too_long()? {
        Totals::keep_earlier(log_dir)?;
        directory.rename(FILE_NAME, EARLIER)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn written(directory: &Path) -> io::Result<()> {
        let mut timeline = Timeline::default();
        timeline.note("noted");
        let line = Line {
            time: String::new(),
            operation: "",
            container: "c1",
            image_path: timeline.image.as_deref(),
            caller: Caller::of_this_process(),
            failure: None,
            notes: timeline.notes(),
            phases: timeline.phases(),
            stop: timeline.stop,
            shared_out_bytes: None,
            bulk_memory: None,
        };
        append(directory, &line)
    }

    #[test]
    fn lines_go_nowhere_else() {
        let directory = tempfile::tempdir().unwrap();
        let theirs = directory.path().join("theirs");
        fs::write(&theirs, "kept").unwrap();
        let log_dir = directory.path().join("log");
        written(&log_dir).unwrap();
        let line = fs::read_to_string(log_dir.join(FILE_NAME)).unwrap();
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["caller"]["pid"], std::os::unix::process::parent_id());
        fs::remove_file(log_dir.join(FILE_NAME)).unwrap();
        symlink(&theirs, log_dir.join(FILE_NAME)).unwrap();
        written(&log_dir).unwrap_err();
        symlink(&log_dir, directory.path().join("link")).unwrap();
        written(&directory.path().join("link")).unwrap_err();
        assert_eq!(fs::read_to_string(theirs).unwrap(), "kept");
    }

    #[test]
    fn what_was_counted_stays_counted_however_many_logs_there_were() {
        let directory = tempfile::tempdir().unwrap();
        let counted = || {
            let totals = Totals::read(directory.path()).unwrap();
            totals.operations[""].outcomes["done"]
        };
        for count in 1..5 {
            written(directory.path()).unwrap();
            assert_eq!(counted(), count);
            let opened = Directory::make(directory.path(), 0o700).unwrap();
            put_aside(directory.path(), &opened, 0).unwrap();
            drop(opened);
            assert_eq!(counted(), count);
        }
    }

    #[test]
    fn a_long_log_is_put_aside_once() {
        let directory = tempfile::tempdir().unwrap();
        let [log, earlier] = [FILE_NAME, EARLIER].map(|name| directory.path().join(name));
        for (text, is_long) in [("12345", false), ("123456", true)] {
            fs::write(&log, text).unwrap();
            let opened = Directory::make(directory.path(), 0o700).unwrap();
            put_aside(directory.path(), &opened, 5).unwrap();
            put_aside(directory.path(), &opened, 5).unwrap();
            let left = if is_long { "" } else { text };
            assert_eq!(fs::read_to_string(&log).unwrap(), left);
        }
        assert_eq!(fs::read(earlier).unwrap(), b"123456");
    }
}
