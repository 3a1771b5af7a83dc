//! An estimate of how far a phase has come, from outside: the driver reports no progress during a
//! call, and queries would only delay it.

use std::fs::{self, File};
use std::io::{self, Seek};
use std::path::Path;
use std::time::SystemTime;

use stasis_linux::{ProcessRef, file, procfs};

use crate::container::Container;

/// A process may have many groups, all on one line (proc_pid_status(5)).
const MAX_STATUS_BYTES: u64 = 1 << 20;

/// The bytes that a phase moves, and where they can be observed. An estimate, for people who wait.
#[derive(Debug)]
pub struct ProgressEstimate<'a> {
    total: Option<u64>,
    /// What the processes had when the phase began.
    baseline: Held,
    source: Source<'a>,
    /// The file where our CRIU plugin writes its progress once it has begun.
    plugin_progress: Option<&'a Path>,
}

#[derive(Debug)]
enum Source<'a> {
    /// The driver moves GPU contents into memory of each process.
    Filling(Vec<Status>),
    /// The driver moves GPU contents out of that memory again and frees it.
    Emptying(Vec<Status>),
    /// CRIU writes the container's memory into the image directory.
    Image {
        container: &'a Container,
        directory: &'a Path,
        since: SystemTime,
    },
    /// Only our CRIU plugin reports progress.
    Plugin,
}

/// How far a phase has come; unknown values are `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reading {
    /// The bytes moved so far.
    pub done: Option<u64>,
    /// The bytes to move.
    pub total: Option<u64>,
}

impl<'a> ProgressEstimate<'a> {
    /// For the GPU checkpoint of these processes, which hold `bytes` of GPU memory.
    #[must_use]
    pub fn gpu_checkpoint(bytes: u64, processes: &[ProcessRef]) -> Self {
        Self::new(Some(bytes), Source::Filling(open_all(processes)))
    }

    /// For the GPU restore of these processes, which held `bytes` of GPU memory.
    #[must_use]
    pub fn gpu_restore(bytes: u64, processes: &[ProcessRef]) -> Self {
        Self::new(Some(bytes), Source::Emptying(open_all(processes)))
    }

    /// For the dump of a container. Files of the image directory that are older than `since`, the
    /// beginning of the operation, are those of an earlier dump. Once our CRIU plugin has written
    /// its progress to the file `plugin_progress`, those numbers count instead.
    #[must_use]
    pub fn dump(
        container: &'a Container,
        directory: &'a Path,
        since: SystemTime,
        plugin_progress: Option<&'a Path>,
    ) -> Self {
        let source = Source::Image {
            container,
            directory,
            since,
        };
        Self {
            plugin_progress,
            ..Self::new(None, source)
        }
    }

    /// For the restore of a container by CRIU; only our plugin reports progress.
    #[must_use]
    pub fn criu_restore(plugin_progress: Option<&'a Path>) -> Self {
        Self {
            plugin_progress,
            ..Self::new(None, Source::Plugin)
        }
    }

    /// For a phase that says in a file how far it is, as our CRIU plugin does.
    #[must_use]
    pub fn said(progress: &'a Path) -> Self {
        Self::criu_restore(Some(progress))
    }

    fn new(total: Option<u64>, source: Source<'a>) -> Self {
        Self {
            total,
            baseline: Held::default(),
            source,
            plugin_progress: None,
        }
    }

    /// The bytes that a phase of the GPU moves between GPU and host, if known.
    #[must_use]
    pub fn gpu_bytes(&self) -> Option<u64> {
        match self.source {
            Source::Filling(_) | Source::Emptying(_) => self.total,
            Source::Image { .. } | Source::Plugin => None,
        }
    }

    /// Reads the values at the beginning of the phase.
    pub(crate) fn start(&mut self) {
        match &self.source {
            Source::Filling(statuses) | Source::Emptying(statuses) => {
                self.baseline = held_by(statuses);
            }
            Source::Image { container, .. } => self.total = resident(container).ok(),
            Source::Plugin => {}
        }
    }

    /// Reads the current values.
    pub(crate) fn read(&self) -> Reading {
        if let Some(reading) = self.plugin_progress.and_then(read_plugin_progress) {
            return reading;
        }
        let done = match &self.source {
            Source::Filling(statuses) => Some(held_by(statuses).more_than(self.baseline)),
            Source::Emptying(statuses) => Some(self.baseline.freed_since(held_by(statuses))),
            Source::Image {
                directory, since, ..
            } => written(directory, *since).ok(),
            Source::Plugin => None,
        };
        // The processes also allocate and free other memory meanwhile.
        let done = match (done, self.total) {
            (Some(done), Some(total)) => Some(done.min(total)),
            (done, _) => done,
        };
        Reading {
            done,
            total: self.total,
        }
    }
}

/// `/proc/PID/status` of one process: a file opened once never becomes the file of another process
/// with the same pid. Unlike `smaps_rollup` it is read without the process's memory lock.
#[derive(Debug)]
struct Status(File);

impl Status {
    fn open(process: &ProcessRef) -> Option<Self> {
        let file = File::open(format!("/proc/{}/status", process.pid())).ok()?;
        // The process is alive after the open, so the file is this process's.
        process.is_alive().ok()?.then_some(Self(file))
    }

    fn read(&self) -> io::Result<procfs::Status> {
        let mut file = &self.0;
        file.rewind()?;
        let text = file::read_limited(file, MAX_STATUS_BYTES)?;
        Ok(procfs::Status::from_text(text))
    }
}

fn open_all(processes: &[ProcessRef]) -> Vec<Status> {
    processes.iter().filter_map(Status::open).collect()
}

/// Memory of processes where GPU contents may be, in bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    /// Pages of no file.
    anonymous: u64,
    /// Pages of files in memory.
    in_files: u64,
    /// Addresses that are mapped. A file in memory that was mapped anew has no pages yet.
    mapped: u64,
}

impl Held {
    fn more_than(self, before: Self) -> u64 {
        let anonymous = self.anonymous.saturating_sub(before.anonymous);
        anonymous.max(self.in_files.saturating_sub(before.in_files))
    }

    fn freed_since(self, now: Self) -> u64 {
        let mapped = self.mapped.saturating_sub(now.mapped);
        self.more_than(now).max(mapped)
    }
}

/// Of all; a process that has ended has nothing.
fn held_by(statuses: &[Status]) -> Held {
    let read = statuses.iter().filter_map(|status| status.read().ok());
    read.fold(Held::default(), |held, status| Held {
        anonymous: held.anonymous + bytes_of(&status, &["RssAnon"]),
        in_files: held.in_files + bytes_of(&status, &["RssShmem"]),
        mapped: held.mapped + bytes_of(&status, &["VmSize"]),
    })
}

/// The anonymous memory of a container in bytes; shared pages count once for each process.
///
/// # Errors
/// The I/O error.
pub(crate) fn anonymous_of(container: &Container) -> io::Result<u64> {
    sum_of(container, &["RssAnon", "VmSwap"])
}

/// The memory that CRIU has to write: pages of no file. Shared pages count for each process.
fn resident(container: &Container) -> io::Result<u64> {
    sum_of(container, &["RssAnon", "RssShmem", "VmSwap"])
}

/// Reads one process after the other: a container may have more processes than we may open files.
fn sum_of(container: &Container, fields: &[&str]) -> io::Result<u64> {
    let mut bytes = 0;
    for pid in container.cgroup().pids()? {
        let status = procfs::Status::of(pid)?;
        bytes += status.map_or(0, |status| bytes_of(&status, fields));
    }
    Ok(bytes)
}

/// The sum of fields of `/proc/PID/status`, which are in KiB. A kernel thread has none of them.
fn bytes_of(status: &procfs::Status, fields: &[&str]) -> u64 {
    let values = fields.iter().filter_map(|field| {
        let value = std::str::from_utf8(status.field(field)?).ok()?;
        let kib: u64 = value.strip_suffix(" kB")?.parse().ok()?;
        kib.checked_mul(1024)
    });
    values.sum()
}

/// Reads "BYTES TOTAL" from the first line. `None` as long as the plugin has nothing to move.
fn read_plugin_progress(file: &Path) -> Option<Reading> {
    let text = fs::read_to_string(file).ok()?;
    let mut words = text.lines().next()?.split_ascii_whitespace();
    let mut number = || words.next()?.parse::<u64>().ok();
    let (done, total) = (number()?, number()?);
    (total > 0).then_some(Reading {
        done: Some(done.min(total)),
        total: Some(total),
    })
}

fn written(directory: &Path, since: SystemTime) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        // CRIU removes temporary files meanwhile.
        let Ok(metadata) = entry?.metadata() else {
            continue;
        };
        if metadata.is_file() && metadata.modified()? >= since {
            bytes += metadata.len();
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
