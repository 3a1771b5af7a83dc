//! Room on the GPUs for processes whose GPU state is in host memory.
//!
//! A driver restore without room is final, while a process that stays CHECKPOINTED is safe. So the
//! room of all processes that go back together is requested before any is restored.

use std::sync::{Mutex, PoisonError};

use stasis_linux::ProcessRef;

use crate::cuda::failure::{Cause, JobError, NoRoom, ProcessFailure, Step};
use crate::cuda::gpu_use::{GpuBytes, add};
use crate::cuda::process_set::initial_state::{InitialState, SafeState};
use crate::cuda::process_set::{can_be_queried, twice};
use crate::cuda::threads::for_each;
use crate::cuda::{CudaState, Driver};

/// The place where room on GPUs is reserved.
pub trait Room: Send + Sync {
    /// Reserves the needed bytes, in place of an earlier reservation, and may wait for them.
    ///
    /// # Errors
    /// [`NoRoom`]; nothing has been changed.
    fn reserve(&self, needed: &GpuBytes) -> Result<(), NoRoom>;
}

/// Processes that must stay CHECKPOINTED, since a GPU lacks the room that they need together.
#[derive(Debug)]
pub struct WithoutRoom {
    /// At least one.
    processes: Vec<ProcessRef>,
    no_room: NoRoom,
}

impl WithoutRoom {
    /// Returns one failure for each process.
    pub(crate) fn failures(&self) -> Vec<ProcessFailure> {
        let fail = |process| {
            let cause = Cause::NoRoom(Box::new(self.no_room.clone()));
            ProcessFailure::of(Step::Restore, process, cause)
        };
        self.processes.iter().map(fail).collect()
    }

    /// Returns the room that they lack.
    pub fn into_cause(self) -> NoRoom {
        self.no_room
    }

    /// Whether the process is one of them.
    pub(crate) fn has(&self, process: &ProcessRef) -> bool {
        let mut processes = self.processes.iter();
        processes.any(|each| each.pid() == process.pid())
    }
}

impl From<WithoutRoom> for JobError {
    fn from(without_room: WithoutRoom) -> Self {
        Self {
            fault: without_room.failures().swap_remove(0),
            lost: without_room.failures(),
        }
    }
}

/// Reserves the room that these processes need together to go back to how they were found.
pub fn reserve(
    driver: &dyn Driver,
    processes: &[ProcessRef],
    initial_state: &InitialState,
) -> Result<(), WithoutRoom> {
    let processes = returning(driver, processes, initial_state);
    let mut needed = GpuBytes::new();
    for process in &processes {
        add(&mut needed, initial_state.held_by(process));
    }
    if needed.is_empty() {
        return Ok(());
    }
    driver
        .reserve(&needed)
        .map_err(|no_room| WithoutRoom { processes, no_room })
}

/// Returns the processes whose GPU contents are in host memory, and go back to GPUs. A process that
/// cannot be queried does not go back now.
fn returning(
    driver: &dyn Driver,
    processes: &[ProcessRef],
    initial_state: &InitialState,
) -> Vec<ProcessRef> {
    let goes_back = |process: &&ProcessRef| {
        initial_state.state_of(process) != SafeState::Checkpointed
            && !initial_state.held_by(process).is_empty()
    };
    let may_go_back: Vec<_> = processes.iter().filter(goes_back).cloned().collect();
    let returning = Mutex::new(Vec::new());
    let _ = for_each(Step::Query, &may_go_back, |process| {
        let is_checkpointed = || twice(|| driver.state(process)) == Ok(CudaState::Checkpointed);
        if can_be_queried(process)? && is_checkpointed() {
            let mut returning = returning.lock().unwrap_or_else(PoisonError::into_inner);
            returning.push(process.clone());
        }
        Ok(())
    });
    returning
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
}
