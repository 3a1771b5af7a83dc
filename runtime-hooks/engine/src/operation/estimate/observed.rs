//! Memory of processes whose GPU contents are moved, as the kernel and threads of ours report it.

use std::fmt;
use std::fs::File;
use std::io::{self, Seek};

use stasis_gpu::cuda::Driver;
use stasis_linux::{ProcessRef, file, procfs};

/// A process may have many groups, all on one line (proc_pid_status(5)).
const MAX_STATUS_BYTES: u64 = 1 << 20;

/// Processes whose GPU contents are moved.
pub(super) struct Observed<'a> {
    pub(super) statuses: Vec<Status>,
    /// Reports the bytes that threads of ours have copied.
    pub(super) driver: &'a dyn Driver,
}

impl<'a> Observed<'a> {
    pub(super) fn of(processes: &[ProcessRef], driver: &'a dyn Driver) -> Self {
        Self {
            statuses: processes.iter().filter_map(Status::open).collect(),
            driver,
        }
    }
}

impl fmt::Debug for Observed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Observed");
        shown
            .field("statuses", &self.statuses)
            .finish_non_exhaustive()
    }
}

/// `/proc/PID/status` of one process: a file opened once never becomes the file of another process
/// with the same pid. Unlike `smaps_rollup` it is read without the process's memory lock.
#[derive(Debug)]
pub(super) struct Status(pub(super) File);

impl Status {
    pub(super) fn open(process: &ProcessRef) -> Option<Self> {
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

/// Memory of processes where GPU contents may be, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Held {
    /// Pages of no file.
    pub(super) anonymous: u64,
    /// Pages of files in memory.
    pub(super) in_files: u64,
    /// Addresses that are mapped. A file in memory that was mapped anew has no pages yet.
    pub(super) mapped: u64,
}

impl Held {
    pub(super) fn more_than(self, before: Self) -> u64 {
        let anonymous = self.anonymous.saturating_sub(before.anonymous);
        anonymous.max(self.in_files.saturating_sub(before.in_files))
    }

    pub(super) fn freed_since(self, now: Self) -> u64 {
        let mapped = self.mapped.saturating_sub(now.mapped);
        self.more_than(now).max(mapped)
    }
}

/// Sums up all processes; an ended process has nothing.
pub(super) fn held_by(statuses: &[Status]) -> Held {
    let read = statuses.iter().filter_map(|status| status.read().ok());
    read.fold(Held::default(), |held, status| Held {
        anonymous: held.anonymous + bytes_of(&status, &["RssAnon"]),
        in_files: held.in_files + bytes_of(&status, &["RssShmem"]),
        mapped: held.mapped + bytes_of(&status, &["VmSize"]),
    })
}

/// The sum of fields of `/proc/PID/status`, which are in KiB. A kernel thread has none of them.
pub(super) fn bytes_of(status: &procfs::Status, fields: &[&str]) -> u64 {
    let values = fields.iter().filter_map(|field| {
        let value = std::str::from_utf8(status.field(field)?).ok()?;
        let kib: u64 = value.strip_suffix(" kB")?.parse().ok()?;
        kib.checked_mul(1024)
    });
    values.sum()
}
