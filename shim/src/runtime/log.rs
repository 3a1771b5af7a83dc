//! The error of a runtime that failed: the last one in the log that its command line named.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::error::RuntimeMessage;

/// With `--debug` a runtime writes megabytes; its last error is near the end.
const MAX_BYTES: u64 = 1 << 20;

/// A position in a log: what is before it was written by earlier calls.
#[derive(Debug)]
pub(crate) struct Mark {
    log: PathBuf,
    offset: u64,
}

impl Mark {
    /// The end of a log, which may not exist yet.
    pub(crate) fn at_end_of(log: &Path) -> Self {
        Self {
            log: log.to_owned(),
            offset: log.metadata().map_or(0, |metadata| metadata.len()),
        }
    }
}

/// The last error after the mark.
pub(crate) fn last_error(mark: &Mark) -> Option<RuntimeMessage> {
    let mut log = File::open(&mark.log).ok()?;
    let end = log.seek(SeekFrom::End(0)).ok()?;
    let from = mark.offset.max(end.saturating_sub(MAX_BYTES));
    log.seek(SeekFrom::Start(from)).ok()?;
    let mut bytes = Vec::new();
    log.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    text.lines().rev().find_map(error_in)
}

fn error_in(line: &str) -> Option<RuntimeMessage> {
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    if line["level"] != "error" {
        return None;
    }
    let text = |field: &str| line[field].as_str().map(str::to_owned);
    Some(RuntimeMessage {
        message: line["msg"].as_str()?.trim().to_owned(),
        criu_log: text("criu_log").map(PathBuf::from),
        kind: text("kind"),
        state: text("state"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const EARLIER: &str = "{\"level\":\"error\",\"msg\":\"earlier\"}\n";

    #[test]
    fn the_last_error_since_the_mark_counts() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log.json");
        std::fs::write(&path, EARLIER).unwrap();
        let mark = Mark::at_end_of(&path);
        assert_eq!(last_error(&mark), None);
        let more = "{\"level\":\"error\",\"msg\":\"first\"}\nnot JSON\n\
                    {\"level\":\"error\",\"msg\":\"second\",\"criu_log\":\"/var/log/x\"}\n\
                    {\"level\":\"warning\",\"msg\":\"last\"}\n";
        std::fs::write(&path, format!("{EARLIER}{more}")).unwrap();
        let message = last_error(&mark).unwrap();
        assert_eq!(message.to_string(), "second");
        assert_eq!(message.criu_log.as_deref(), Some(Path::new("/var/log/x")));
    }

    #[test]
    fn a_refusal_that_may_pass_is_no_failure() {
        let refuses = |kind: &str, state: &str| {
            let line = serde_json::json!({
                "level": "error", "msg": "no", "kind": kind, "state": state,
            });
            error_in(&line.to_string()).unwrap().is_refusal_for_now()
        };
        assert!(refuses("busy", "unharmed"));
        assert!(refuses("blocked", "unharmed"));
        assert!(!refuses("process-stopped", "waiting"));
        assert!(!refuses("criu", "unharmed"));
        // runc and crun write neither.
        let plain = error_in("{\"level\":\"error\",\"msg\":\"no\"}").unwrap();
        assert!(!plain.is_refusal_for_now());
    }

    #[test]
    fn a_log_that_was_never_written_has_no_error() {
        assert_eq!(
            last_error(&Mark::at_end_of(Path::new("/nonexistent"))),
            None
        );
    }
}
