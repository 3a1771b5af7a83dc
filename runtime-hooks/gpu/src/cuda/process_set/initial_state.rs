//! The driver states in which an operation finds processes, and to which it brings them back.

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};
use stasis_linux::ProcessRef;

use crate::cuda::gpu_use::GpuBytes;
use crate::cuda::{CudaState, Driver};

/// A driver state in which a process can stay, the freest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum SafeState {
    /// [`CudaState::Running`].
    Running,
    /// [`CudaState::Locked`].
    Locked,
    /// [`CudaState::Checkpointed`].
    Checkpointed,
}

/// The identity of a process, as long as the machine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId {
    /// The pid in our namespace.
    pub pid: i32,
    /// In clock ticks since boot.
    pub start_time: u64,
}

/// The states in which an operation found processes, and the memory that they held on GPUs. A
/// process that is not listed was found RUNNING: it has begun to use CUDA since.
#[derive(Debug, Clone, Default)]
pub struct InitialState {
    found: BTreeMap<ProcessId, (SafeState, GpuBytes)>,
    nothing: GpuBytes,
}

impl InitialState {
    /// The state in which this process was found.
    pub fn state_of(&self, process: &ProcessRef) -> SafeState {
        let found = self.found.get(&ProcessId::of(process));
        found.map_or(SafeState::Running, |(state, _)| *state)
    }

    /// Adds the states of another container.
    pub fn add(&mut self, others: Self) {
        self.found.extend(others.found);
    }

    /// Announces to the driver that these processes are restored next.
    pub(crate) fn expect(&self, driver: &dyn Driver, processes: &[ProcessRef]) {
        let bytes = |process: &ProcessRef| self.held_by(process).values().sum();
        let held = processes
            .iter()
            .map(|process| (process.clone(), bytes(process)));
        let held: Vec<(ProcessRef, u64)> = held.filter(|(_, bytes)| *bytes > 0).collect();
        // The image has the figures of processes that CRIU has restored, which are announced once.
        if !held.is_empty() {
            driver.expect(&held);
        }
    }

    /// Returns the memory that this process held on each GPU; empty if that is not known.
    pub fn held_by(&self, process: &ProcessRef) -> &GpuBytes {
        let found = self.found.get(&ProcessId::of(process));
        found.map_or(&self.nothing, |(_, held)| held)
    }
}

impl FromIterator<(ProcessId, (SafeState, GpuBytes))> for InitialState {
    fn from_iter<T: IntoIterator<Item = (ProcessId, (SafeState, GpuBytes))>>(found: T) -> Self {
        Self {
            found: found.into_iter().collect(),
            nothing: GpuBytes::new(),
        }
    }
}

impl ProcessId {
    /// The identity of a process.
    #[must_use]
    pub fn of(process: &ProcessRef) -> Self {
        Self {
            pid: process.pid(),
            start_time: process.start_time(),
        }
    }

    /// Opens the process; `None` if it has ended.
    pub fn open(self) -> io::Result<Option<ProcessRef>> {
        let process = ProcessRef::open(self.pid)?;
        Ok(process.filter(|process| process.start_time() == self.start_time))
    }
}

impl SafeState {
    /// Whether a process that was found in this state needs nothing more: another program may have
    /// made it freer than it was.
    #[must_use]
    pub fn is_back(self, now: CudaState) -> bool {
        match now {
            CudaState::Running => true,
            CudaState::Locked => self >= Self::Locked,
            CudaState::Checkpointed => self == Self::Checkpointed,
            CudaState::Failed | CudaState::Unknown(_) => false,
        }
    }
}

impl From<CudaState> for SafeState {
    /// A process that the driver has lost cannot stay as it is: it counts as one that ran.
    fn from(state: CudaState) -> Self {
        match state {
            CudaState::Running | CudaState::Failed | CudaState::Unknown(_) => Self::Running,
            CudaState::Locked => Self::Locked,
            CudaState::Checkpointed => Self::Checkpointed,
        }
    }
}

impl From<SafeState> for CudaState {
    fn from(state: SafeState) -> Self {
        match state {
            SafeState::Running => Self::Running,
            SafeState::Locked => Self::Locked,
            SafeState::Checkpointed => Self::Checkpointed,
        }
    }
}
