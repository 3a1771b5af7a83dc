//! An estimate of a phase's progress, from outside: the driver reports no progress during a call,
//! and queries would only delay it.

mod observed;

use std::fs;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use stasis_gpu::cuda::Driver;
use stasis_linux::{ProcessRef, procfs};

use crate::container::Container;
use observed::{Held, Observed, bytes_of, held_by};

/// How long the driver and CRIU take at a checkpoint for GPU contents of this many bytes that
/// become memory of their processes, with one thread each. A restore takes less. Measured with 8
/// GiB on an H200 (docs/internals/benchmarks.md): GPU checkpoint 5.1 s and dump 5.0 s; CRIU restore
/// 5.4 s and GPU restore 1.8 s.
pub(crate) fn seconds_by_criu(bytes: u64) -> f64 {
    const SECONDS: f64 = 10.1;
    const BYTES: u64 = 8 << 30;
    bytes as f64 / BYTES as f64 * SECONDS
}

/// The bytes that a phase moves, and where they are observed. An estimate, for people who wait.
#[derive(Debug)]
pub struct ProgressEstimate<'a> {
    total: Option<u64>,
    /// The memory of the processes when the phase began.
    baseline: Held,
    source: Source<'a>,
}

#[derive(Debug)]
enum Source<'a> {
    /// The driver moves GPU contents into memory of each process.
    Filling(Observed<'a>),
    /// The driver moves GPU contents out of that memory again, and frees all of it at the end.
    /// Until then threads of ours that copy report their progress.
    Emptying(Observed<'a>),
    /// CRIU writes the container's memory into the image directory.
    Image {
        container: &'a Container,
        directory: &'a Path,
        since: SystemTime,
    },
    /// The process that moves contents reports its progress in this file.
    Said(&'a Path),
}

/// The progress of a phase; unknown values are `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The bytes moved so far.
    pub(crate) done: Option<u64>,
    /// The bytes to move.
    pub(crate) total: Option<u64>,
}

impl<'a> ProgressEstimate<'a> {
    /// For the GPU checkpoint of these processes, which hold `bytes` of GPU memory.
    #[must_use]
    pub fn gpu_checkpoint(bytes: u64, processes: &[ProcessRef], driver: &'a dyn Driver) -> Self {
        let source = Source::Filling(Observed::of(processes, driver));
        Self::new(Some(bytes), source)
    }

    /// For the GPU restore of these processes, which held `bytes` of GPU memory.
    pub(crate) fn gpu_restore(
        bytes: u64,
        processes: &[ProcessRef],
        driver: &'a dyn Driver,
    ) -> Self {
        let source = Source::Emptying(Observed::of(processes, driver));
        Self::new(Some(bytes), source)
    }

    /// For the dump of a container. Files of the image directory that are older than `since`, the
    /// beginning of the operation, belong to an earlier dump.
    #[must_use]
    pub fn dump(container: &'a Container, directory: &'a Path, since: SystemTime) -> Self {
        let source = Source::Image {
            container,
            directory,
            since,
        };
        Self::new(None, source)
    }

    /// For a phase that reports its progress in a file.
    #[must_use]
    pub fn said(progress: &'a Path) -> Self {
        Self::new(None, Source::Said(progress))
    }

    fn new(total: Option<u64>, source: Source<'a>) -> Self {
        Self {
            total,
            baseline: Held::default(),
            source,
        }
    }

    /// The bytes that a phase of the GPU moves between GPU and host, if known.
    pub fn gpu_bytes(&self) -> Option<u64> {
        match self.source {
            Source::Filling(_) | Source::Emptying(_) => self.total,
            Source::Image { .. } | Source::Said(_) => None,
        }
    }

    /// Reads the values at the beginning of the phase.
    pub(crate) fn start(&mut self) {
        match &self.source {
            Source::Filling(observed) | Source::Emptying(observed) => {
                self.baseline = held_by(&observed.statuses);
            }
            Source::Image { container, .. } => self.total = resident(container).ok(),
            Source::Said(_) => {}
        }
    }

    /// Reads the current values.
    pub(crate) fn read(&self) -> Reading {
        let done = match &self.source {
            Source::Filling(observed) => {
                let filled = held_by(&observed.statuses).more_than(self.baseline);
                Some(filled.max(observed.driver.copied()))
            }
            Source::Emptying(observed) => {
                let freed = self.baseline.freed_since(held_by(&observed.statuses));
                Some(freed.saturating_add(observed.driver.copied()))
            }
            Source::Image {
                directory, since, ..
            } => written(directory, *since).ok(),
            Source::Said(progress) => return read_said(progress).unwrap_or_default(),
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

/// The anonymous memory of a container in bytes; shared pages count once for each process.
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

/// Reads "BYTES TOTAL" from the first line. `None` as long as there is nothing to move.
fn read_said(file: &Path) -> Option<Reading> {
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
