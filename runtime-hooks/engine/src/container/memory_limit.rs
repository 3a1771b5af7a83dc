//! Reads the memory limits of a container.
//!
//! GPU contents that go through no file become ordinary memory of the processes, which is charged
//! to the container: with a limit meant for its host memory alone, the kernel would kill it during
//! a GPU checkpoint. So limits of the container's own cgroup, of the sub-cgroups that its CUDA
//! processes are in, and of the cgroups above (its pod's, a slice's) are looked at first, and one
//! that leaves too little refuses the operation. None is changed: it is set by the engine.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use stasis_linux::ProcessRef;
use stasis_linux::cgroup::{Cgroup, Hierarchies, Membership, Version, is_removed};

/// The memory cgroup of a container. Without a memory controller it has no limits.
#[derive(Debug, Clone)]
pub struct MemoryCgroup {
    cgroup: Cgroup,
    /// The directories of sub-cgroups that count as well.
    inner: BTreeSet<PathBuf>,
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

impl fmt::Display for TightLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, limit, used) = (self.file.display(), self.limit >> 20, self.used >> 20);
        write!(
            f,
            "{file} allows {limit} MiB, of which {used} MiB are in use"
        )
    }
}

/// The files of one limit in a cgroup's directory, and of what is charged against it; and the line
/// of `memory.stat` with the part of it that the kernel drops before it kills.
type LimitFiles = [&'static str; 3];

const V1: [LimitFiles; 2] = [
    [
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_inactive_file ",
    ],
    [
        "memory.memsw.limit_in_bytes",
        "memory.memsw.usage_in_bytes",
        "total_inactive_file ",
    ],
];
const V2: [LimitFiles; 2] = [
    // Above it processes are slowed down until the driver call seems to hang.
    ["memory.high", "memory.current", "inactive_file "],
    ["memory.max", "memory.current", "inactive_file "],
];

impl MemoryCgroup {
    /// The memory limits of this cgroup, which has the memory controller if there is one.
    #[must_use]
    pub fn new(cgroup: Cgroup) -> Self {
        let inner = BTreeSet::new();
        Self { cgroup, inner }
    }

    /// The memory cgroup of a process; `None` if it has none.
    pub fn of(pid: i32) -> io::Result<Option<Self>> {
        Ok(Cgroup::of_process(pid, "memory")?.map(Self::new))
    }

    /// Adds the sub-cgroups that these processes of it are in: systemd or Slurm in a container give
    /// them limits of their own.
    pub(crate) fn with_those_of<'p>(
        &self,
        processes: impl IntoIterator<Item = &'p ProcessRef>,
    ) -> io::Result<Self> {
        let hierarchies = Hierarchies::read()?;
        let mut all = self.clone();
        for process in processes {
            let membership = Membership::of(process.pid())?;
            let cgroup = membership.and_then(|of| hierarchies.cgroup_of(&of, "memory"));
            all.inner.extend(
                cgroup
                    .iter()
                    .flat_map(|cgroup| self.down_to(cgroup.directory())),
            );
        }
        Ok(all)
    }

    /// The directories below this cgroup's down to this one; none if it is elsewhere.
    fn down_to<'d>(&self, inner: &'d Path) -> impl Iterator<Item = PathBuf> + use<'_, 'd> {
        let own = self.cgroup.directory();
        let is_below = move |directory: &&Path| *directory != own && directory.starts_with(own);
        inner.ancestors().take_while(is_below).map(Path::to_owned)
    }

    /// The limits, of this cgroup and the sub-cgroups that count, that leave less than `needed`
    /// bytes.
    pub(crate) fn tight_limits(&self, needed: u64) -> io::Result<Vec<TightLimit>> {
        let inner = self.inner.iter().map(PathBuf::as_path);
        self.tight_in([self.cgroup.directory()].into_iter().chain(inner), needed)
    }

    /// The limits of the cgroups above this one, which need not exist, that leave less than
    /// `needed` bytes.
    pub(crate) fn tight_limits_above(&self, needed: u64) -> io::Result<Vec<TightLimit>> {
        self.tight_in(self.cgroup.directory().ancestors().skip(1), needed)
    }

    fn tight_in<'d>(
        &self,
        directories: impl Iterator<Item = &'d Path>,
        needed: u64,
    ) -> io::Result<Vec<TightLimit>> {
        let mut tight = Vec::new();
        for directory in directories {
            for [limit, usage, droppable] in limits(self.cgroup.version()) {
                // Not every cgroup has the controller: the root of version 2 has no limit, and one
                // without the controller may be below one that has it.
                let Some(used) = used(directory, usage, droppable)? else {
                    continue;
                };
                let file = directory.join(limit);
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

/// The charged bytes, without the file cache that the kernel can drop at once. `None` in a
/// directory without them: there is no such cgroup or controller, or no accounting of swap.
fn used(directory: &Path, usage: &str, droppable: &str) -> io::Result<Option<u64>> {
    let usage = directory.join(usage);
    let Some(charged) = read(&usage)? else {
        return Ok(None);
    };
    let charged = parse(&usage, &charged)?;
    let stat = read(&directory.join("memory.stat"))?.unwrap_or_default();
    let line = stat.lines().find_map(|line| line.strip_prefix(droppable));
    let droppable = line.and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
    Ok(Some(charged.saturating_sub(droppable)))
}

fn limits(version: Version) -> &'static [LimitFiles] {
    match version {
        Version::V1 => &V1,
        Version::V2 => &V2,
    }
}

/// `None`: no limit, or no such file.
fn read_limit(file: &Path) -> io::Result<Option<u64>> {
    match read(file)? {
        Some(text) if text.trim() != "max" => parse(file, &text).map(Some),
        _ => Ok(None),
    }
}

/// `None` if the file, or its cgroup, is gone.
fn read(file: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if is_removed(&error) => Ok(None),
        Err(error) => Err(at(file, &error)),
    }
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
