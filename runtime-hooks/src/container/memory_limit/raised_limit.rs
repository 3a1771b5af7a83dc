//! Limits that an operation raised: recorded on disk, and put back.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stasis_linux::file::{self, Access, Durability};

use super::{LimitFiles, MemoryCgroup, at, is_gone, read_limit, whole_pages};

/// The name of the record in an operation's directory.
pub(super) const RECORD: &str = "memory-limits.json";
/// Far above the record of any container.
const MAX_BYTES: u64 = 1 << 20;
/// How long the kernel may take to uncharge memory that the driver has just freed.
const SETTLE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(10);

/// A limit that was raised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RaisedLimit {
    file: PathBuf,
    from: u64,
    to: u64,
    /// What an earlier raise had set, and what is still set if this one was cut off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before: Option<u64>,
}

impl MemoryCgroup {
    /// Raises every limit that leaves less than `needed` bytes, so that it leaves them; `directory`
    /// is the operation's.
    ///
    /// # Errors
    /// An error of reading or writing a limit or the record. Limits raised by then are recorded.
    pub(crate) fn raise(&self, needed: u64, directory: &Path) -> io::Result<Vec<RaisedLimit>> {
        let mut raised = Vec::new();
        for tight in self.tight_limits(needed)? {
            let to = whole_pages(tight.used.saturating_add(needed));
            raised.push(RaisedLimit::new(tight.file, tight.limit, to));
        }
        record(directory, &raised)?;
        // With version 1 the limit with swap first, which may not be below the other.
        for limit in raised.iter().rev() {
            limit.write(limit.to)?;
        }
        Ok(raised)
    }
}

/// Puts back the limits of a container's cgroups.
pub(super) fn put_back(directory: &Path) -> io::Result<()> {
    let mut result = Ok(());
    let mut limits = read_record(directory)?;
    let deadline = Instant::now() + SETTLE;
    limits.retain(|limit| {
        let back = until(deadline, || limit.put_back());
        let stays = back.is_err();
        if result.is_ok() {
            result = back;
        }
        stays
    });
    write_record(directory, &limits)?;
    result
}

/// Waits until no more memory is in use than the limits that an operation raised had allowed.
///
/// # Errors
/// More is in use, also after the time that the kernel may take to uncharge memory.
pub(crate) fn wait_until_fitting(directory: &Path) -> io::Result<()> {
    let deadline = Instant::now() + SETTLE;
    for limit in read_record(directory)? {
        until(deadline, || limit.check_usage())?;
    }
    Ok(())
}

/// Records limits that are about to be raised. What is recorded of a file from an earlier raise
/// stays its original value, unless somebody else has set another limit since.
pub(super) fn record(directory: &Path, raised: &[RaisedLimit]) -> io::Result<()> {
    if raised.is_empty() {
        return Ok(());
    }
    let mut record = read_record(directory)?;
    for limit in raised {
        let known = record.iter_mut().find(|known| known.file == limit.file);
        match known {
            Some(known) if known.is_set_to(limit.from) => {
                (known.before, known.to) = (Some(limit.from), limit.to);
            }
            Some(known) => known.clone_from(limit),
            None => record.push(limit.clone()),
        }
    }
    write_record(directory, &record)
}

impl RaisedLimit {
    /// A limit that is about to be raised, in bytes.
    pub(super) fn new(file: PathBuf, from: u64, to: u64) -> Self {
        let before = None;
        Self {
            file,
            from,
            to,
            before,
        }
    }

    /// Whether a limit with this value is as an operation has set it.
    fn is_set_to(&self, limit: u64) -> bool {
        self.to == limit || self.before == Some(limit)
    }

    fn put_back(&self) -> io::Result<()> {
        match read_limit(&self.file)? {
            Some(limit) if self.is_set_to(limit) => {}
            // The cgroup went with its container, or somebody has set another limit meanwhile,
            // which stays.
            _ => return Ok(()),
        }
        self.check_usage()?;
        self.write(self.from)
    }

    /// Whether no more is in use than it allowed.
    fn check_usage(&self) -> io::Result<()> {
        let directory = self.file.parent().unwrap_or(Path::new("/"));
        let files = LimitFiles::of(&self.file);
        let used = files.map_or(Ok(None), |files| files.used(directory))?;
        match used.filter(|used| *used > self.from) {
            None => Ok(()),
            Some(used) => Err(io::Error::other(format!(
                "{} MiB are in use, more than the limit of {} MiB that {} had",
                used >> 20,
                self.from >> 20,
                self.file.display()
            ))),
        }
    }

    /// Sets it; a cgroup that is gone needs no limit.
    fn write(&self, bytes: u64) -> io::Result<()> {
        match fs::write(&self.file, bytes.to_string()) {
            Err(error) if !is_gone(&error) => Err(at(&self.file, &error)),
            _ => Ok(()),
        }
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

/// Tries until it succeeds, or the deadline has passed.
fn until(deadline: Instant, attempt: impl Fn() -> io::Result<()>) -> io::Result<()> {
    loop {
        match attempt() {
            Err(_) if Instant::now() < deadline => sleep(POLL),
            result => return result,
        }
    }
}

fn read_record(directory: &Path) -> io::Result<Vec<RaisedLimit>> {
    match file::read(&directory.join(RECORD), MAX_BYTES)? {
        Some(text) => Ok(serde_json::from_slice(&text)?),
        None => Ok(Vec::new()),
    }
}

fn write_record(directory: &Path, record: &[RaisedLimit]) -> io::Result<()> {
    let path = directory.join(RECORD);
    if record.is_empty() {
        return file::remove(&path);
    }
    let text = serde_json::to_vec(record)?;
    file::replace(&path, &text, Access::Private, Durability::Durable)
}
