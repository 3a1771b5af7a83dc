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

use serde_json::Value;
use stasis_engine::error::chain;
use stasis_engine::error::kind::{Diagnosis, Image};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::oci::runtime_error::RuntimeError;
use crate::oci::{GlobalOptions, LogFormat};

impl GlobalOptions {
    /// Reports an error with its sources, in one line, to the log that the command line names and
    /// to standard error. The path of CRIU's log is a separate field for the shim, which otherwise
    /// keeps a log itself.
    pub fn log_error(&self, error: &RuntimeError) {
        let message = message(error);
        let Diagnosis { kind, state, image } = error.diagnosis();
        let mut fields = vec![("kind", kind.name().into()), ("state", state.name().into())];
        if image == Image::Complete {
            fields.push(("image_complete", true.into()));
        }
        if let (LogFormat::Json, Some(criu_log)) = (self.log_format, error.criu_log()) {
            fields.push(("criu_log", criu_log.to_string_lossy().into()));
        }
        // The caller can still read standard error.
        self.append("error", &message, &fields);
        let _ = writeln!(io::stderr(), "{message}");
    }

    /// Writes a warning to the log only: standard error may be the container's.
    pub fn log_warning(&self, text: &str) {
        self.append("warning", text, &[]);
    }

    /// Appends a line in the format of runc's JSON logger or of its text logger.
    fn append(&self, level: &str, message: &str, fields: &[(&str, Value)]) {
        let Some(log) = &self.log else {
            return;
        };
        let time = OffsetDateTime::now_utc().format(&Rfc3339);
        let time = time.unwrap_or_default();
        let line = match self.log_format {
            LogFormat::Json => {
                let mut line = serde_json::json!({"level": level, "msg": message, "time": time});
                for (name, value) in fields {
                    line[*name] = value.clone();
                }
                line.to_string()
            }
            LogFormat::Text => {
                let mut line = format!("time={time:?} level={level} msg={message:?}");
                for (name, value) in fields {
                    let text = value
                        .as_str()
                        .map_or_else(|| value.to_string(), str::to_owned);
                    line += &format!(" {name}={text}");
                }
                line
            }
        };
        let _ = append(log, &format!("{line}\n"));
    }
}

fn append(log: &Path, line: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut log = options.append(true).create(true).mode(0o644).open(log)?;
    log.write_all(line.as_bytes())
}

/// Formats the error, its sources and its kind, which an operation's error has in its text.
fn message(error: &RuntimeError) -> String {
    let text = chain(error);
    match error {
        RuntimeError::Operation(_) => text,
        _ => format!("{text} [{}]", error.diagnosis().kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stasis_engine::error::after_failure::AfterFailure;
    use stasis_engine::error::{Error, Failure};
    use stasis_engine::operation::verb::Verb;

    /// Returns the lines that an error appends to a log of this format.
    fn reported(format: LogFormat, error: impl Into<RuntimeError>) -> String {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        std::fs::write(&log, "earlier\n").unwrap();
        let options = GlobalOptions {
            log: Some(log.clone()),
            log_format: format,
            ..GlobalOptions::default()
        };
        options.log_error(&error.into());
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
            options.log_warning("a \"typo\"");
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
