//! The lines of `operations.log`, as readers see them.

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use stasis_engine::error::operations_log::{EARLIER, FILE_NAME};
use stasis_engine::error::without_heading;
use stasis_engine::operation::timeline::{Phase, most_bytes, seconds_of};
use stasis_host::time::parsed;
use stasis_linux::file;
use stasis_memory_store::StoreStatistics;

/// The most that is read of a file: files are put aside at 64 MiB.
const MOST_BYTES: u64 = 128 << 20;

/// One operation, as it was logged.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Line {
    /// When it began, RFC 3339.
    pub time: String,
    /// "checkpoint", "restore", "resume", "suspend", ...
    pub operation: String,
    /// The container's id.
    pub container: String,
    /// The path of its image, now or earlier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_path: Option<PathBuf>,
    /// The caller.
    #[serde(default)]
    pub caller: Caller,
    /// The error, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Its kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The state of the container afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Notes for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Its phases, in order.
    #[serde(default)]
    pub phases: Vec<Phase>,
    /// The report of bulk memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bulk_memory: Option<StoreStatistics>,
    /// All other logged fields.
    #[serde(flatten)]
    pub more: serde_json::Map<String, Value>,
}

/// The caller of an operation.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Caller {
    /// The command name of the parent process.
    #[serde(default)]
    pub name: Option<String>,
    /// All other logged fields.
    #[serde(flatten)]
    pub more: serde_json::Map<String, Value>,
}

impl Line {
    /// Returns the seconds that it took. A part of a phase is in the phase's time.
    pub fn seconds(&self) -> f64 {
        seconds_of(&self.phases)
    }

    /// Returns the most bytes that one phase has moved: the same contents go from phase to phase.
    pub fn bytes(&self) -> Option<u64> {
        most_bytes(&self.phases, self.bulk_memory.as_ref())
    }

    /// Returns the cause and the state of a failure: a reader sees operation, container and kind
    /// beside it.
    pub fn cause(&self) -> Option<&str> {
        let (error, kind) = (self.error.as_ref()?, self.kind.as_deref());
        let kind = kind.unwrap_or_default();
        Some(without_heading(
            error,
            &self.operation,
            &self.container,
            kind,
        ))
    }

    /// Returns whether it failed, or was refused.
    pub fn has_failed(&self) -> bool {
        self.error.is_some()
    }

    pub(super) fn began(&self) -> Option<SystemTime> {
        parsed(&self.time)
    }
}

/// Reads all lines, the oldest first. Leaves out text that is no line, such as one that is cut off.
///
/// # Errors
/// The I/O error; a missing log counts as empty.
pub(crate) fn read(log_dir: &Path, mut each: impl FnMut(Line)) -> io::Result<()> {
    for name in [EARLIER, FILE_NAME] {
        let Some(file) = file::open(&log_dir.join(name))? else {
            continue;
        };
        for text in BufReader::new(file.take(MOST_BYTES)).split(b'\n') {
            if let Ok(line) = serde_json::from_slice(&text?) {
                each(line);
            }
        }
    }
    Ok(())
}
