//! The threads of a container, and their attributes that the kernel keeps and CRIU does not.

mod facts;
mod io_priority;

use std::io;

use crate::procfs::{Status, TaskState, processes, threads};
use crate::tree::descendants;

pub use facts::{Fact, Facts, Usual};

/// A thread of a process that descends from a container's first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thread {
    /// The pid of its process.
    process: i32,
    id: i32,
    /// Its number in the pid namespace of the container's first process.
    pub inside: i32,
}

impl Thread {
    fn of(process: i32, id: i32, depth: usize) -> io::Result<Option<Self>> {
        let status = Status::of_thread(process, id)?;
        let alive = status.filter(|status| status.state() != Some(TaskState::Ended));
        let inside = alive.and_then(|status| status.namespace_pids()?.get(depth).copied());
        Ok(inside.map(|inside| Self {
            process,
            id,
            inside,
        }))
    }

    /// Whether it is the first one of its process.
    #[must_use]
    pub fn is_first(self) -> bool {
        self.process == self.id
    }
}

/// Calls `work` for each thread that CRIU dumps with the process `init`, or has restored.
///
/// # Errors
/// Errors of reading `/proc`, and of `work`.
pub fn for_each_of_tree(
    init: i32,
    mut work: impl FnMut(Thread) -> io::Result<()>,
) -> io::Result<()> {
    let pids = Status::of(init)?.and_then(|status| status.namespace_pids());
    let depth = pids.unwrap_or_default().len().saturating_sub(1);
    for process in descendants(init, processes()?)? {
        for id in threads(process)? {
            if let Some(thread) = Thread::of(process, id, depth)? {
                work(thread)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_of_ours_is_met_once() {
        let (own, mut met) = (std::process::id().cast_signed(), Vec::new());
        let here = std::thread::spawn(move || {
            for_each_of_tree(own, |thread| {
                met.push(thread.inside);
                Ok(())
            })
            .unwrap();
            let this = rustix::thread::gettid().as_raw_nonzero().get();
            (met, this)
        });
        let (mut met, this) = here.join().unwrap();
        assert!(met.contains(&this) && met.contains(&own), "{met:?}");
        let count = met.len();
        met.sort_unstable();
        met.dedup();
        assert_eq!(met.len(), count);
    }
}
