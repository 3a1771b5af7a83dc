//! Writes errors where the callers of an OCI runtime read them.
//!
//! containerd, podman and CRI-O show the last line of level "error" in the `--log` file; go-runc
//! keeps the first line of standard error of a failed checkpoint. So the message itself names the
//! kind, and the log also has it as a field for programs. Nothing is written on success: during a
//! restore our standard streams are the container's.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::cli::oci::runtime_error::RuntimeError;
use crate::cli::oci::{GlobalOptions, LogFormat};
use crate::error::chain;
use crate::error::kind::{Diagnosis, Image};

/// The outputs for errors.
#[derive(Debug)]
pub struct Report<'a> {
    options: &'a GlobalOptions,
}

impl<'a> Report<'a> {
    /// The log that the command line names, and standard error.
    #[must_use]
    pub fn new(options: &'a GlobalOptions) -> Self {
        Self { options }
    }

    /// Reports an error with its sources, in one line. The path of CRIU's log is a separate field
    /// for the shim, which otherwise keeps a log itself.
    pub fn error(&self, error: &RuntimeError) {
        let message = message(error);
        if let Some(log) = &self.options.log {
            let line = match self.options.log_format {
                LogFormat::Json => json_line(&message, error.diagnosis(), error.criu_log()),
                LogFormat::Text => text_line(&message, error.diagnosis()),
            };
            // The caller can still read standard error.
            let _ = append(log, &line);
        }
        let _ = writeln!(io::stderr(), "{message}");
    }

    /// Writes a warning to the log only: standard error may be the container's.
    pub fn warning(&self, text: &str) {
        if let Some(log) = &self.options.log {
            let line = match self.options.log_format {
                LogFormat::Json => format!("{}\n", json("warning", text)),
                LogFormat::Text => format!("{}\n", text_of("warning", text)),
            };
            let _ = append(log, &line);
        }
    }
}

fn append(log: &Path, line: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut log = options.append(true).create(true).mode(0o644).open(log)?;
    log.write_all(line.as_bytes())
}

/// The error with its sources and its kind. The text of an operation's error already has the kind.
fn message(error: &RuntimeError) -> String {
    let text = chain(error);
    match error {
        RuntimeError::Operation(_) => text,
        _ => format!("{text} [{}]", error.diagnosis().kind),
    }
}

/// A line in the format of runc's JSON logger, with additional fields.
fn json_line(message: &str, diagnosis: Diagnosis, criu_log: Option<&Path>) -> String {
    let mut line = json("error", message);
    line["kind"] = diagnosis.kind.name().into();
    line["state"] = diagnosis.state.name().into();
    if diagnosis.image == Image::Complete {
        line["image_complete"] = true.into();
    }
    if let Some(criu_log) = criu_log {
        line["criu_log"] = criu_log.to_string_lossy().into();
    }
    format!("{line}\n")
}

/// The same line in the text format.
fn text_line(message: &str, Diagnosis { kind, state, image }: Diagnosis) -> String {
    let start = text_of("error", message);
    let complete = match image {
        Image::Complete => " image_complete=true",
        Image::None => "",
    };
    format!("{start} kind={kind} state={state}{complete}\n")
}

fn json(level: &str, message: &str) -> serde_json::Value {
    serde_json::json!({"level": level, "msg": message, "time": now()})
}

fn text_of(level: &str, message: &str) -> String {
    let time = now();
    format!("time={time:?} level={level} msg={message:?}")
}

fn now() -> String {
    let now = OffsetDateTime::now_utc().format(&Rfc3339);
    now.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::after_failure::AfterFailure;
    use crate::error::{Error, Failure};
    use crate::operation::verb::Verb;

    /// The lines that an error appends to a log of this format.
    fn reported(format: LogFormat, error: impl Into<RuntimeError>) -> String {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        std::fs::write(&log, "earlier\n").unwrap();
        let options = GlobalOptions {
            log: Some(log.clone()),
            log_format: format,
            ..GlobalOptions::default()
        };
        Report::new(&options).error(&error.into());
        let text = std::fs::read_to_string(&log).unwrap();
        let (earlier, ours) = text.split_once('\n').unwrap();
        assert_eq!(earlier, "earlier");
        assert_eq!(ours.lines().count(), 1, "{ours}");
        ours.to_owned()
    }

    fn not_moved() -> Error {
        let cause = Failure::GpuContents(io::Error::other("says \"no\"\nand more"));
        let after_failure = AfterFailure::ImageComplete(Vec::new());
        Error::failed(Verb::Checkpoint, "c1", cause, after_failure)
    }

    #[test]
    fn a_json_line_has_kind_state_and_whether_the_image_is_complete() {
        let line = reported(LogFormat::Json, not_moved());
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["level"], "error");
        assert_eq!(line["kind"], "bulk-memory");
        assert_eq!(line["state"], "unharmed");
        assert_eq!(line["image_complete"], true);
        let message = line["msg"].as_str().unwrap();
        assert!(message.contains("failed [bulk-memory]: "), "{message}");
        assert!(message.contains("says \"no\"\\nand more"), "{message}");
        assert_eq!(line.get("criu_log"), None);
    }

    #[test]
    fn a_path_does_not_act_on_the_terminal_of_who_reads_the_message() {
        let path = std::path::PathBuf::from("/images/a\n\x1b[31mb");
        let source = io::Error::other("no room");
        let error = || RuntimeError::HandOver {
            path: path.clone(),
            source: io::Error::new(source.kind(), source.to_string()),
        };
        let shown = "cannot run /images/a\\n\\u{1b}[31mb: no room";
        assert!(
            message(&error()).starts_with(shown),
            "{}",
            message(&error())
        );
        let line = reported(LogFormat::Json, error());
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert!(line["msg"].as_str().unwrap().starts_with(shown), "{line}");
    }

    #[test]
    fn a_warning_is_in_the_log_and_no_error() {
        let directory = tempfile::tempdir().unwrap();
        for (log_format, level) in [
            (LogFormat::Json, "\"level\":\"warning\""),
            (LogFormat::Text, "level=warning"),
        ] {
            let log = directory.path().join(level);
            let options = GlobalOptions {
                log: Some(log.clone()),
                log_format,
                ..GlobalOptions::default()
            };
            Report::new(&options).warning("a \"typo\"");
            let line = std::fs::read_to_string(&log).unwrap();
            assert!(line.contains(level) && line.contains("typo"), "{line}");
            assert!(!line.contains("error") && line.ends_with('\n'), "{line}");
        }
    }

    #[test]
    fn a_text_line_quotes_the_message_and_has_the_same() {
        let line = reported(LogFormat::Text, not_moved());
        assert!(line.contains("says \\\"no\\\"\\\\nand more"), "{line}");
        let end = " kind=bulk-memory state=unharmed image_complete=true\n";
        assert!(line.ends_with(end), "{line}");
    }

    #[test]
    fn what_fails_before_an_operation_begins_names_its_kind_too() {
        let error = RuntimeError::Signals(io::Error::other("out of descriptors"));
        let line = reported(LogFormat::Json, error);
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            line["msg"],
            "cannot prepare for signals: out of descriptors [io]"
        );
        assert_eq!(line["state"], "unharmed");
        assert_eq!(line.get("image_complete"), None);
    }
}
