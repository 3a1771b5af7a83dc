//! The driver states in which an operation finds processes, and to which it brings them back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stasis_linux::ProcessRef;

use crate::cuda::CudaState;

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

/// The states in which an operation found processes. One that is not listed was found RUNNING: it
/// has begun to use CUDA since.
#[derive(Debug, Clone, Default)]
pub struct AsFound(BTreeMap<ProcessId, SafeState>);

impl AsFound {
    /// The state in which this process was found.
    #[must_use]
    pub fn state_of(&self, process: &ProcessRef) -> SafeState {
        let found = self.0.get(&ProcessId::of(process)).copied();
        found.unwrap_or(SafeState::Running)
    }
}

impl FromIterator<(ProcessId, SafeState)> for AsFound {
    fn from_iter<T: IntoIterator<Item = (ProcessId, SafeState)>>(found: T) -> Self {
        Self(found.into_iter().collect())
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
}

impl SafeState {
    /// Whether a process that was found in this state needs nothing more: somebody else may have
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
    /// What the driver has lost cannot stay as it is: it counts as one that ran.
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
