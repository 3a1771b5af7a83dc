//! The process of a runtime that is under way.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::process::{Signal, pidfd_send_signal};
use stasis_linux::procfs::{Stat, TaskState};
use tokio::time::sleep;

use crate::runtime::programs::STASIS_RUNTIME;

/// How often a runtime is looked at that may have become another.
const POLL: Duration = Duration::from_secs(1);

/// The process of a runtime. `stasis-runtime` becomes the low-level runtime (execve) for a
/// container without GPU state.
#[derive(Debug)]
pub(crate) struct RuntimeProcess {
    pid: u32,
    process: OwnedFd,
}

impl RuntimeProcess {
    /// The process of a child.
    pub(crate) fn new(pid: u32, process: OwnedFd) -> Self {
        Self { pid, process }
    }

    /// Sends it a signal.
    ///
    /// # Errors
    ///
    /// It has ended.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.process, signal)?)
    }

    /// Whether it is still `stasis-runtime`: execve(2) changes the name.
    pub(crate) fn is_stasis_runtime(&self) -> bool {
        matches!(self.stat(), Some(stat) if stat.name == STASIS_RUNTIME.as_bytes())
    }

    /// Whether it is the low-level runtime, and has not ended.
    pub(crate) fn is_low_level(&self) -> bool {
        matches!(
            self.stat(),
            Some(stat) if stat.state != TaskState::Ended && stat.name != STASIS_RUNTIME.as_bytes()
        )
    }

    /// Waits until it is `stasis-runtime` no longer, which has deadlines of its own and must not be
    /// killed half-way.
    pub(super) async fn becomes_low_level(&self) {
        while self.is_stasis_runtime() {
            sleep(POLL).await;
        }
    }

    fn stat(&self) -> Option<Stat> {
        Stat::of(i32::try_from(self.pid).ok()?).ok()?
    }
}
