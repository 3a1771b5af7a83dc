//! Errors as the callers of an OCI runtime look for them.
//!
//! containerd, podman and CRI-O show the last line of level "error" in the `--log` file; go-runc
//! keeps the first line of standard error of a failed checkpoint. Nothing is written on success:
//! at a restore our standard streams are the container's.

use std::error::Error;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::error::chain;
use crate::invocation::{GlobalOptions, LogFormat};

/// Where errors go.
#[derive(Debug)]
pub struct Report<'a> {
    options: &'a GlobalOptions,
}

impl<'a> Report<'a> {
    /// The log that the caller named, and standard error.
    #[must_use]
    pub fn new(options: &'a GlobalOptions) -> Self {
        Self { options }
    }

    /// Reports an error with its sources, in one line. `criu_log` is where CRIU's log was kept, told
    /// in a field of its own for the shim, which else keeps one.
    pub fn error(&self, error: &dyn Error, criu_log: Option<&Path>) {
        let message = chain(error);
        if let Some(log) = &self.options.log {
            // The caller still has standard error.
            let _ = append(log, &line(self.options.log_format, &message, criu_log));
        }
        let _ = writeln!(io::stderr(), "{message}");
    }
}

fn append(log: &Path, line: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut log = options.append(true).create(true).mode(0o644).open(log)?;
    log.write_all(line.as_bytes())
}

/// As runc's logger writes it.
fn line(format: LogFormat, message: &str, criu_log: Option<&Path>) -> String {
    let time = OffsetDateTime::now_utc()
        .format(&Rfc3339)
        .unwrap_or_default();
    match format {
        LogFormat::Json => {
            let mut line = serde_json::json!({ "level": "error", "msg": message, "time": time });
            if let Some(criu_log) = criu_log {
                line["criu_log"] = criu_log.to_string_lossy().into();
            }
            format!("{line}\n")
        }
        LogFormat::Text => format!("time={time:?} level=error msg={message:?}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_appended_in_the_format_that_was_asked_for() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log.json");
        std::fs::write(&log, "earlier\n").unwrap();
        let options = GlobalOptions {
            log: Some(log.clone()),
            log_format: LogFormat::Json,
            ..GlobalOptions::default()
        };
        Report::new(&options).error(
            &io::Error::other("says \"no\"\nand more"),
            Some(Path::new("/var/log/x")),
        );
        let text = std::fs::read_to_string(&log).unwrap();
        let (earlier, ours) = text.split_once('\n').unwrap();
        assert_eq!(earlier, "earlier");
        assert_eq!(ours.lines().count(), 1);
        let ours: serde_json::Value = serde_json::from_str(ours).unwrap();
        assert_eq!(ours["level"], "error");
        assert_eq!(ours["criu_log"], "/var/log/x");
        assert_eq!(ours["msg"], "says \"no\"\nand more");
    }

    #[test]
    fn a_text_line_quotes_the_message() {
        let line = line(LogFormat::Text, "says \"no\"", None);
        assert!(
            line.ends_with("level=error msg=\"says \\\"no\\\"\"\n"),
            "{line}"
        );
    }
}
