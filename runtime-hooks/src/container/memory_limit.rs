//! Reads the memory limits of a container, and raises them for the time of an operation.
//!
//! The driver moves GPU contents into ordinary memory of the processes, which is charged to the
//! container: with a limit meant for its host memory alone, the kernel would kill it during a GPU
//! checkpoint. So stasis raises each limit of the container's cgroup and of those above it (a
//! pod's) as far as needed, and puts it back when the GPU has its contents again. It records the
//! limits on disk before it raises them, so that any later process can put them back.

mod raised_limit;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use stasis_linux::cgroup::{Cgroup, Version};

pub(crate) use raised_limit::{RaisedLimit, put_back};

/// The memory cgroup of a container. Without a memory controller it has no limits.
#[derive(Debug, Clone)]
pub struct MemoryCgroup {
    cgroup: Cgroup,
}

/// A limit that leaves too little.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TightLimit {
    /// The file that sets it.
    pub file: PathBuf,
    /// The limit in bytes.
    pub limit: u64,
    /// The charged bytes, without the file cache that the kernel can drop at once.
    pub used: u64,
}

impl MemoryCgroup {
    /// The memory limits of this cgroup, which has the memory controller if there is one.
    #[must_use]
    pub fn new(cgroup: Cgroup) -> Self {
        Self { cgroup }
    }

    /// The memory cgroup of a process; `None` if it has none.
    ///
    /// # Errors
    /// An error of reading `/proc`.
    pub fn of(pid: i32) -> io::Result<Option<Self>> {
        Ok(Cgroup::of_process(pid, "memory")?.map(Self::new))
    }

    /// The limits, of this cgroup and those above it, that leave less than `needed` bytes.
    ///
    /// # Errors
    /// An error of reading the cgroup.
    pub fn tight_limits(&self, needed: u64) -> io::Result<Vec<TightLimit>> {
        let mut tight = Vec::new();
        let version = self.cgroup.version();
        for directory in self.cgroup.with_ancestors() {
            // The root of a unified hierarchy has no such file.
            if !directory.join(usage_file(version)).exists() {
                break;
            }
            let used = used(version, directory)?;
            for file in limit_files(version).map(|name| directory.join(name)) {
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
}

/// Outermost last: with version 1 the limit with swap may not be below the one without.
fn limit_files(version: Version) -> std::slice::Iter<'static, &'static str> {
    match version {
        Version::V1 => ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"].iter(),
        // Above `high` processes are slowed down until the driver call seems to hang.
        Version::V2 => ["memory.high", "memory.max"].iter(),
    }
}

fn usage_file(version: Version) -> &'static str {
    match version {
        Version::V1 => "memory.usage_in_bytes",
        Version::V2 => "memory.current",
    }
}

/// The charged bytes, without the inactive file cache that the kernel drops before it kills.
fn used(version: Version, directory: &Path) -> io::Result<u64> {
    let dropped = match version {
        Version::V1 => "total_inactive_file ",
        Version::V2 => "inactive_file ",
    };
    let charged = read_number(&directory.join(usage_file(version)))?;
    let stat = fs::read_to_string(directory.join("memory.stat"))?;
    let dropped = stat
        .lines()
        .find_map(|line| line.strip_prefix(dropped)?.parse().ok());
    Ok(charged.saturating_sub(dropped.unwrap_or(0)))
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

#[cfg(test)]
mod tests;
