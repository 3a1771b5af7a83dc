//! Code of ours for the checkpoint threads of several processes, for the time of some requests.

use std::io;
use std::path::Path;
use std::thread;

use serde::{Deserialize, Serialize};
use stasis_injection::imports::Visited;
use stasis_injection::survey::{Removed, VisitRecord, prepare, remove};
use stasis_linux::ProcessRef;

use crate::cuda::process_set::initial_state::ProcessId;
use crate::gpu_path::records::{HeldRecord, Injected};

/// A locked process, and the driver's checkpoint thread in it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Asked {
    /// The process.
    pub process: ProcessId,
    /// The thread's id.
    pub thread: i32,
}

/// A process with code of ours in it.
pub(in crate::gpu_path) struct Visit {
    pub(in crate::gpu_path) process: ProcessRef,
    pub(in crate::gpu_path) record: VisitRecord,
    kept: HeldRecord,
}

impl Visit {
    /// `records` is the directory of the records.
    fn begin(records: &Path, of: Asked) -> io::Result<Self> {
        let process = of.process.open()?;
        let process = process.ok_or_else(|| io::Error::other("it has ended"))?;
        let record = prepare(&process, of.thread).map_err(io::Error::other)?;
        let kept = HeldRecord::write(records, &process, &Injected::Survey(record.clone()));
        match kept {
            Ok(kept) => Ok(Self {
                process,
                record,
                kept,
            }),
            // Without a record no process would know of our code in it.
            Err(error) => {
                let _ = remove(&process, &record);
                Err(error)
            }
        }
    }

    /// Returns the process as requests need it.
    pub(in crate::gpu_path) fn visited(&self) -> Visited<'_> {
        Visited {
            process: &self.process,
            record: &self.record,
        }
    }

    /// Removes our code. If it fails, there is a record of it.
    fn end(self) -> io::Result<()> {
        match remove(&self.process, &self.record).map_err(io::Error::other)? {
            Removed::Gone | Removed::Ended => {
                self.kept.remove();
                Ok(())
            }
            Removed::InUse => Err(io::Error::other(
                "the driver's checkpoint thread does not come back",
            )),
        }
    }
}

/// Puts code into all of these processes, at the same time where that is possible. `work` receives
/// the processes that could be visited, and why others could not, in the order of `asked`.
///
/// # Errors
/// The error of `work`, or of the first process in which something is left.
pub(in crate::gpu_path) fn visit_all<T>(
    records: &Path,
    asked: &[Asked],
    work: impl FnOnce(&[io::Result<Visit>]) -> io::Result<T>,
) -> io::Result<T> {
    let visits = at_the_same_time(asked, |of| Visit::begin(records, *of));
    let worked = work(&visits);
    let visits: Vec<Visit> = visits.into_iter().flatten().collect();
    let ended = visits.into_iter().map(Visit::end);
    let left = ended.fold(Ok(()), io::Result::and);
    worked.and_then(|done| left.map(|()| done))
}

/// Calls `each` with each item, on a thread of its own.
pub(in crate::gpu_path) fn at_the_same_time<T: Sync, U: Send>(
    all: &[T],
    each: impl Fn(&T) -> io::Result<U> + Sync,
) -> Vec<io::Result<U>> {
    thread::scope(|scope| {
        let each = &each;
        let threads: Vec<_> = all
            .iter()
            .map(|one| scope.spawn(move || each(one)))
            .collect();
        let panicked = |_| Err(io::Error::other("a thread has panicked"));
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(panicked))
            .collect()
    })
}
