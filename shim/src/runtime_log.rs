//! What a runtime complained about: the last error in the log that it was told to write.

use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Runtimes that were told to be verbose write megabytes; the last error is near the end.
const MAX_BYTES: u64 = 1 << 20;

/// A place in a log: what stood there before belongs to earlier calls.
#[derive(Debug)]
pub(crate) struct Mark {
    log: PathBuf,
    offset: u64,
}

/// What a runtime said went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Complaint {
    message: String,
    /// Where CRIU's log was put, if the runtime did.
    pub(crate) criu_log: Option<PathBuf>,
}

impl Mark {
    /// The end of a log, which need not exist yet.
    pub(crate) fn at_end_of(log: &Path) -> Self {
        Self {
            log: log.to_owned(),
            offset: log.metadata().map_or(0, |metadata| metadata.len()),
        }
    }
}

impl Complaint {
    /// A complaint in these words.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            criu_log: None,
        }
    }

    /// Says where CRIU's log is.
    pub(crate) fn name_criu_log(&mut self, path: &Path) {
        self.message = format!("{}; CRIU's log: {}", self.message, path.display());
        self.criu_log = Some(path.to_owned());
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The last error since the mark.
pub(crate) fn last_error(mark: &Mark) -> Option<Complaint> {
    let mut log = File::open(&mark.log).ok()?;
    let end = log.seek(SeekFrom::End(0)).ok()?;
    let from = mark.offset.max(end.saturating_sub(MAX_BYTES));
    log.seek(SeekFrom::Start(from)).ok()?;
    let mut bytes = Vec::new();
    log.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    text.lines().rev().find_map(error_in)
}

fn error_in(line: &str) -> Option<Complaint> {
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    if line["level"] != "error" {
        return None;
    }
    Some(Complaint {
        message: line["msg"].as_str()?.trim().to_owned(),
        criu_log: line["criu_log"].as_str().map(PathBuf::from),
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
        let complaint = last_error(&mark).unwrap();
        assert_eq!(complaint.to_string(), "second");
        assert_eq!(complaint.criu_log.as_deref(), Some(Path::new("/var/log/x")));
    }

    #[test]
    fn a_log_that_was_never_written_says_nothing() {
        assert_eq!(
            last_error(&Mark::at_end_of(Path::new("/nonexistent"))),
            None
        );
    }
}
