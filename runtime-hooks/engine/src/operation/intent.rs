//! The intent: the record of the state in which an operation found a container's processes, and of
//! the operation or caller that has to bring them back to it.

use std::path::Path;

use serde::{Deserialize, Serialize};
use stasis_gpu::cuda::gpu_use::{CudaProcess, GpuBytes, add, gpu_bytes};
use stasis_gpu::cuda::process_set::ProcessStates;
use stasis_gpu::cuda::process_set::initial_state::{InitialState, ProcessId, SafeState};
use stasis_gpu::cuda::{CudaState, GpuMap};
use stasis_linux::ProcessRef;
use stasis_linux::cgroup::FreezerState;
use stasis_linux::file::{self, Access, Durability};

use crate::operation::OperationError;
use crate::operation::directory::directory_of;

/// The record's file in an operation's directory.
pub(super) const FILE_NAME: &str = "intent.json";
/// The same limit as for a manifest, which lists the same processes.
const MAX_BYTES: u64 = 16 << 20;

/// The state of a container as a running or interrupted operation found it, and processes that
/// earlier operations have left to others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// The processes that may be locked or checkpointed.
    pub members: Vec<Member>,
    /// The freezer's state that the operation found, and brings back.
    #[serde(with = "FreezerName")]
    pub freezer: FreezerState,
}

/// A process that may be locked or checkpointed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its identity on this machine.
    pub id: ProcessId,
    /// The GPU memory it held: the driver does not report it for a process whose GPU state is in
    /// host memory.
    pub process: CudaProcess,
    /// The state in which it was found. No operation moves it further than that.
    pub found: SafeState,
    /// The party that brings it back to that state; until then it stays as it is.
    pub pending_on: PendingOn,
}

/// The party that has to bring a process back to the state in which it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PendingOn {
    /// The operation itself; if it is dead, any later one.
    Operation,
    /// The caller's OCI `resume`: the container was frozen when a checkpoint that leaves it
    /// running began, and the caller still copies its files.
    Resume,
    /// The operator, who has freed the container's GPUs (`cuda-checkpoint --container`) and gives
    /// them back.
    Operator,
}

/// The names of [`FreezerState`] in the file.
#[derive(Serialize, Deserialize)]
#[serde(remote = "FreezerState", rename_all = "lowercase")]
enum FreezerName {
    Thawed,
    Frozen,
}

impl Member {
    /// A process in the state in which an operation finds it, or as an earlier, unfinished
    /// operation recorded it.
    pub(crate) fn new(
        process: &ProcessRef,
        state: SafeState,
        described: CudaProcess,
        earlier: Option<&Self>,
    ) -> Self {
        Self {
            id: ProcessId::of(process),
            process: described,
            found: earlier.map_or(state, |earlier| earlier.found),
            pending_on: earlier.map_or(PendingOn::Operation, |earlier| earlier.pending_on),
        }
    }

    /// Returns the state to which an operation brings it back.
    fn goal(&self) -> SafeState {
        match self.pending_on {
            PendingOn::Operation => self.found,
            PendingOn::Resume | PendingOn::Operator => SafeState::Checkpointed,
        }
    }
}

impl Intent {
    /// Returns the part of an earlier record that still holds with the states that the driver
    /// reports now: processes that wait for a `resume` or for the operator stay, if they are still
    /// checkpointed. Processes of an interrupted operation keep the state in which it found them.
    pub(crate) fn still_holding(mut self, states: &ProcessStates) -> Self {
        let is_held = |id: ProcessId| {
            let mut states = states.iter();
            let now = states.find(|(process, _)| ProcessId::of(process) == id);
            now.is_some_and(|(_, state)| *state == CudaState::Checkpointed)
        };
        self.members
            .retain(|member| member.pending_on == PendingOn::Operation || is_held(member.id));
        self
    }

    /// The process, if it is recorded.
    pub(crate) fn member(&self, process: &ProcessRef) -> Option<&Member> {
        let id = ProcessId::of(process);
        self.members.iter().find(|member| member.id == id)
    }

    /// Returns the bytes that a process holds on its GPUs.
    pub(crate) fn bytes_of(&self, process: &ProcessRef) -> u64 {
        let member = self.member(process);
        member.map_or(0, |member| gpu_bytes([&member.process]))
    }

    /// All processes.
    pub fn processes(&self) -> Vec<CudaProcess> {
        let members = self.members.iter();
        members.map(|member| member.process.clone()).collect()
    }

    /// Returns the states to which the operation, or its successor, brings the processes back.
    pub fn initial_state(&self) -> InitialState {
        let members = self.members.iter();
        let found = |member: &Member| (member.goal(), member.process.gpu_bytes());
        members.map(|member| (member.id, found(member))).collect()
    }

    /// The processes whose GPU contents the operation brings back to their GPUs.
    pub(crate) fn back_to_gpu(&self) -> impl Iterator<Item = &CudaProcess> {
        let members = self.members.iter();
        members
            .filter(|member| member.goal() != SafeState::Checkpointed)
            .map(|member| &member.process)
    }

    /// Returns the bytes that these processes hold on each GPU.
    pub(crate) fn room_to_go_back(&self) -> GpuBytes {
        let mut needed = GpuBytes::new();
        for process in self.back_to_gpu() {
            add(&mut needed, &process.gpu_bytes());
        }
        needed
    }

    /// Whether the operation leaves GPU contents in host memory, where it found them.
    pub(crate) fn keeps_some_off_gpu(&self) -> bool {
        let mut members = self.members.iter();
        members.any(|member| member.goal() == SafeState::Checkpointed)
    }

    /// Returns whether an operation, or its keeper, has processes to bring back to their GPUs.
    pub(crate) fn keeps_a_keeper(&self) -> bool {
        let mut members = self.members.iter();
        members.any(|member| {
            member.pending_on == PendingOn::Operation && member.goal() != SafeState::Checkpointed
        })
    }

    /// Returns whether a `resume` has processes to bring back.
    pub(crate) fn concerns_resume(&self) -> bool {
        let mut members = self.members.iter();
        members.any(|member| member.pending_on != PendingOn::Operator)
    }

    /// Returns the intent with the processes that the operation has moved left to `who`.
    pub(crate) fn left_to(mut self, who: PendingOn) -> Self {
        for member in &mut self.members {
            // A process that was found CHECKPOINTED has not been moved.
            if member.goal() != SafeState::Checkpointed {
                member.pending_on = who;
            }
        }
        self
    }

    /// Returns the intent of the `resume`, which takes over the processes that waited for it.
    pub(crate) fn resumed(mut self) -> Self {
        for member in &mut self.members {
            if member.pending_on == PendingOn::Resume {
                member.pending_on = PendingOn::Operation;
            }
        }
        self.freezer = FreezerState::Thawed;
        self
    }

    /// Returns the intent of the operator who brings all processes to `goal`.
    pub(crate) fn taken_up(mut self, goal: SafeState) -> Self {
        for member in &mut self.members {
            member.pending_on = PendingOn::Operation;
            member.found = goal;
        }
        self
    }

    /// Returns the processes left to others once the operation has brought back everything that it
    /// moved; `None` if there are none.
    pub(crate) fn settled(mut self) -> Option<Self> {
        self.members
            .retain(|member| member.pending_on != PendingOn::Operation);
        (!self.members.is_empty()).then_some(self)
    }

    /// The same intent with each GPU replaced by the one that the map assigns.
    pub(crate) fn moved(mut self, map: &GpuMap) -> Self {
        let members = self.members.iter_mut();
        for gpu in members.flat_map(|member| &mut member.process.gpus) {
            let pair = map.pairs().iter().find(|(old, _)| *old == gpu.uuid);
            gpu.uuid = pair.map_or(gpu.uuid, |(_, new)| *new);
        }
        self
    }

    /// Reads the record in an operation's directory. `None` if there is no record.
    pub(super) fn read(directory: &Path) -> Result<Option<Self>, OperationError> {
        let path = directory.join(FILE_NAME);
        let read = || {
            // A crash of the machine may leave an empty file, where /run is on a disk.
            let text = file::read(&path, MAX_BYTES)?;
            let Some(text) = text.filter(|text| !text.is_empty()) else {
                return Ok(None);
            };
            Ok(Some(serde_json::from_slice(&text)?))
        };
        read().map_err(OperationError::of_file(&path))
    }

    /// Writes the record into an operation's directory. It need not outlive the machine, as its
    /// processes do not, and must not make a stopped job wait for a disk.
    pub(super) fn write(&self, directory: &Path) -> Result<(), OperationError> {
        let path = directory.join(FILE_NAME);
        let write = || {
            let text = serde_json::to_vec(self)?;
            // A record that is too large to be read again would block every later operation.
            file::check_size(text.len() as u64, MAX_BYTES)?;
            file::replace(&path, &text, Access::Private, Durability::Volatile)
        };
        write().map_err(OperationError::of_file(&path))
    }
}

/// Reads a container's intent without taking its lock: it may be another operation's, and change
/// at any time.
///
/// # Errors
/// [`OperationError::Io`], also for a file that holds no valid intent.
pub fn peek(state_dir: &Path, root: &Path, id: &str) -> Result<Option<Intent>, OperationError> {
    Intent::read(&directory_of(state_dir, root, id))
}

#[cfg(test)]
mod tests;
