//! The memory limits of a container, and raising them for the time of an operation.
//!
//! The driver moves GPU contents into ordinary memory of the processes, which is charged to the container: with a limit that was
//! meant for its host memory alone, a GPU checkpoint would have it killed for lack of memory. So each limit in the way, of the container's
//! cgroup and of those above it (a pod's), is raised as far as needed and put back when the GPU has its contents again. What was
//! raised is on disk before it is raised, so that whoever ends the operation can put it back.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// The record's name in an operation's directory.
const RECORD: &str = "memory-limits.json";
const PAGE: u64 = 4096;
const MOUNT: &str = "/sys/fs/cgroup";
/// How long memory that the driver has just given up may take to be uncharged.
const SETTLE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(10);

/// The memory cgroup of a container.
#[derive(Debug, Clone)]
pub struct MemoryCgroup {
    directory: PathBuf,
    version: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// A limit that leaves too little.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TightLimit {
    /// The file that sets it.
    pub file: PathBuf,
    /// The limit in bytes.
    pub limit: u64,
    /// What is charged now, in bytes, without what the kernel can drop at once.
    pub used: u64,
}

/// A limit that was raised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RaisedLimit {
    file: PathBuf,
    from: u64,
    to: u64,
}

impl MemoryCgroup {
    /// A cgroup of the version 1 memory hierarchy.
    #[must_use]
    pub fn v1(directory: PathBuf) -> Self {
        let version = Version::V1;
        Self { directory, version }
    }

    /// A cgroup of the unified hierarchy; without a memory controller it has no limits.
    #[must_use]
    pub fn v2(directory: PathBuf) -> Self {
        let version = Version::V2;
        Self { directory, version }
    }

    /// The memory cgroup of this path below the mount of the hierarchies. As crun tells the versions apart: only a unified
    /// hierarchy has this file at the mount.
    #[must_use]
    pub fn below_mount(relative: &Path) -> Self {
        let mount = Path::new(MOUNT);
        if mount.join("cgroup.controllers").exists() {
            Self::v2(mount.join(relative))
        } else {
            Self::v1(mount.join("memory").join(relative))
        }
    }

    /// The cgroup's directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The memory cgroup of a process, as we see the hierarchies (cgroups(7)); `None` if it has none.
    ///
    /// # Errors
    /// What reading `/proc` said.
    pub fn of(pid: i32) -> io::Result<Option<Self>> {
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
        let path = |wanted: &str| {
            text.lines().find_map(|line| {
                let mut fields = line.splitn(3, ':').skip(1);
                let controllers = fields.next()?;
                let path = fields.next()?.trim_start_matches('/');
                controllers
                    .split(',')
                    .any(|each| each == wanted)
                    .then_some(path)
            })
        };
        let mount = Path::new(MOUNT);
        Ok(match (path("memory"), path("")) {
            (Some(path), _) => Some(Self::v1(mount.join("memory").join(path))),
            (None, Some(path)) => Some(Self::v2(mount.join(path))),
            (None, None) => None,
        })
    }

    /// The limits, of this cgroup and those above it, that leave less than `needed` bytes.
    ///
    /// # Errors
    /// What reading the cgroup said.
    pub fn tight_limits(&self, needed: u64) -> io::Result<Vec<TightLimit>> {
        let mut tight = Vec::new();
        for directory in self.directory.ancestors() {
            // A unified hierarchy has no such file at its root, and nothing has it above the mount.
            if !directory.join(self.version.usage()).exists() {
                break;
            }
            let used = self.version.used(directory)?;
            for file in self.version.limits().map(|name| directory.join(name)) {
                match read_limit(&file)? {
                    Some(limit) if limit.saturating_sub(used) < needed => {
                        tight.push(TightLimit { file, limit, used });
                    }
                    _ => {}
                }
            }
        }
        Ok(tight)
    }

    /// Raises every limit that leaves less than `needed` bytes, so that it leaves that; `directory` is the operation's.
    ///
    /// # Errors
    /// What the kernel said. What was raised by then is recorded.
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
            // One that an earlier operation raised and did not put back goes back to where that found it.
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

/// Puts back what an operation raised.
///
/// # Errors
/// A limit that cannot be put back, since more than it allows is in use: lowering it all the same would have the container killed.
/// It stays recorded.
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
            // Somebody has set another limit meanwhile: that is the one that is wanted.
            Ok(limit) if limit != Some(self.to) => return Ok(()),
            other => other?,
        };
        let version = match self.file.extension() {
            Some(extension) if extension == "max" || extension == "high" => Version::V2,
            _ => Version::V1,
        };
        let used = version.used(self.file.parent().unwrap_or(Path::new("/")))?;
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

impl Version {
    /// Outermost last: with version 1 the limit with swap may not be below the one without.
    fn limits(self) -> std::slice::Iter<'static, &'static str> {
        match self {
            Self::V1 => ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"].iter(),
            // Above `high` processes are slowed down until the driver call seems to hang.
            Self::V2 => ["memory.high", "memory.max"].iter(),
        }
    }

    fn usage(self) -> &'static str {
        match self {
            Self::V1 => "memory.usage_in_bytes",
            Self::V2 => "memory.current",
        }
    }

    /// What is charged, without file contents that nobody uses and the kernel drops before it kills.
    fn used(self, directory: &Path) -> io::Result<u64> {
        let dropped = match self {
            Self::V1 => "total_inactive_file ",
            Self::V2 => "inactive_file ",
        };
        let charged = read_number(&directory.join(self.usage()))?;
        let stat = fs::read_to_string(directory.join("memory.stat"))?;
        let dropped = stat
            .lines()
            .find_map(|line| line.strip_prefix(dropped)?.parse().ok());
        Ok(charged.saturating_sub(dropped.unwrap_or(0)))
    }
}

/// `None`: no limit, or no such file (swap accounting may be off).
fn read_limit(file: &Path) -> io::Result<Option<u64>> {
    match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Ok(text) if text.trim() == "max" => Ok(None),
        Ok(text) => parse(file, &text).map(Some),
        Err(error) => Err(at(file, &error)),
    }
}

fn read_number(file: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(file).map_err(|error| at(file, &error))?;
    parse(file, &text)
}

fn parse(file: &Path, text: &str) -> io::Result<u64> {
    let number = text.trim().parse();
    number.map_err(|_| io::Error::other(format!("{} holds {:?}", file.display(), text.trim())))
}

fn at(file: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", file.display()))
}

fn read_record(directory: &Path) -> io::Result<Vec<RaisedLimit>> {
    match fs::read(directory.join(RECORD)) {
        Ok(text) => Ok(serde_json::from_slice(&text)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn write_record(directory: &Path, record: &[RaisedLimit]) -> io::Result<()> {
    let staged = directory.join("memory-limits.new");
    let mut file = File::create(&staged)?;
    file.write_all(&serde_json::to_vec(record)?)?;
    file.sync_all()?;
    fs::rename(&staged, directory.join(RECORD))
}

#[cfg(test)]
mod tests;
