//! Limits that an operation raised: recorded on disk, and put back.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stasis_linux::cgroup::Version;
use stasis_linux::file::{self, Access, Durability};

use super::{MemoryCgroup, at, read_limit, used};

/// The name of the record in an operation's directory.
pub(super) const RECORD: &str = "memory-limits.json";
const PAGE: u64 = 4096;
/// How long the kernel may take to uncharge memory that the driver has just freed.
const SETTLE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(10);

/// A limit that was raised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RaisedLimit {
    file: PathBuf,
    from: u64,
    to: u64,
}

impl MemoryCgroup {
    /// Raises every limit that leaves less than `needed` bytes, so that it leaves them; `directory`
    /// is the operation's.
    ///
    /// # Errors
    /// An error of reading or writing a limit or the record. Limits raised by then are recorded.
    pub(crate) fn raise(&self, needed: u64, directory: &Path) -> io::Result<Vec<RaisedLimit>> {
        let mut record = read_record(directory)?;
        let mut raised = Vec::new();
        for tight in self.tight_limits(needed)? {
            let to = tight.used.saturating_add(needed).next_multiple_of(PAGE);
            let limit = RaisedLimit {
                file: tight.file,
                from: tight.limit,
                to,
            };
            // If an earlier operation raised it and did not put it back, keep the original value
            // of that operation.
            match record.iter_mut().find(|known| known.file == limit.file) {
                Some(known) => known.to = to,
                None => record.push(limit.clone()),
            }
            raised.push(limit);
        }
        if !raised.is_empty() {
            write_record(directory, &record)?;
        }
        // From the top: a cgroup cannot use what those above it do not allow.
        for limit in raised.iter().rev() {
            limit.write(limit.to)?;
        }
        Ok(raised)
    }
}

/// Puts back the limits that an operation raised.
///
/// # Errors
/// More memory is in use than a limit allowed: the kernel would kill the container if it were
/// lowered. The limit stays recorded.
pub(crate) fn put_back(directory: &Path) -> io::Result<()> {
    let record = read_record(directory)?;
    for limit in &record {
        limit.put_back()?;
    }
    match fs::remove_file(directory.join(RECORD)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl RaisedLimit {
    fn put_back(&self) -> io::Result<()> {
        let deadline = Instant::now() + SETTLE;
        loop {
            match self.try_put_back() {
                Err(_) if Instant::now() < deadline => sleep(POLL),
                result => return result,
            }
        }
    }

    fn try_put_back(&self) -> io::Result<()> {
        match read_limit(&self.file) {
            // The cgroup went with its container.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            // Somebody has set another limit meanwhile, which stays.
            Ok(limit) if limit != Some(self.to) => return Ok(()),
            other => other?,
        };
        let version = match self.file.extension() {
            Some(extension) if extension == "max" || extension == "high" => Version::V2,
            _ => Version::V1,
        };
        let used = used(version, self.file.parent().unwrap_or(Path::new("/")))?;
        if used > self.from {
            return Err(io::Error::other(format!(
                "{} MiB are in use, more than the limit of {} MiB that {} had",
                used >> 20,
                self.from >> 20,
                self.file.display()
            )));
        }
        self.write(self.from)
    }

    fn write(&self, bytes: u64) -> io::Result<()> {
        fs::write(&self.file, bytes.to_string()).map_err(|error| at(&self.file, &error))
    }
}

impl std::fmt::Display for RaisedLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (file, from, to) = (self.file.display(), self.from >> 20, self.to >> 20);
        write!(
            f,
            "{file} raised from {from} MiB to {to} MiB for the time of the operation"
        )
    }
}

fn read_record(directory: &Path) -> io::Result<Vec<RaisedLimit>> {
    match fs::read(directory.join(RECORD)) {
        Ok(text) => Ok(serde_json::from_slice(&text)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn write_record(directory: &Path, record: &[RaisedLimit]) -> io::Result<()> {
    let text = serde_json::to_vec(record)?;
    file::replace(
        &directory.join(RECORD),
        &text,
        Access::Private,
        Durability::Durable,
    )
}
