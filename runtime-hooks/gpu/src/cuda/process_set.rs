//! Queries the states of a container's CUDA processes, and brings them back to how they were found.

pub mod arrivals;
pub mod initial_state;
pub mod room;

use stasis_linux::ProcessRef;
use stasis_linux::procfs::TaskState;

use crate::cuda::failure::{Cause, ProcessFailure, Step};
use crate::cuda::process_set::initial_state::{InitialState, SafeState};
use crate::cuda::stopped::Stop;
use crate::cuda::threads::for_each;
use crate::cuda::{CudaError, CudaState, Driver, GpuMap};

/// The processes that use CUDA, each with its state.
pub type ProcessStates = Vec<(ProcessRef, CudaState)>;

/// Queries the state of each process. Leaves out processes without CUDA and processes that end
/// meanwhile; any other failure is an error, since an image must never silently lack GPU state.
///
/// # Errors
/// The first process whose state cannot be queried.
pub fn query_states(
    driver: &dyn Driver,
    processes: Vec<ProcessRef>,
) -> Result<ProcessStates, ProcessFailure> {
    let mut members = Vec::new();
    for process in processes {
        if !can_be_queried(&process)? {
            continue;
        }
        match driver.state(&process) {
            Ok(state) => members.push((process, state)),
            Err(CudaError::NotInitialized) => {}
            Err(_) if process.is_gone() => {}
            Err(error) => return Err(ProcessFailure::of(Step::Query, &process, error)),
        }
    }
    Ok(members)
}

/// Whether the driver can query a process. The process must run: a state query of a stopped or
/// frozen process never returns (measured on driver 580.159).
pub fn can_be_queried(process: &ProcessRef) -> Result<bool, ProcessFailure> {
    let unreadable = |error| ProcessFailure::of(Step::Query, process, Cause::Io(error));
    if process.state().map_err(unreadable)? == TaskState::Ended {
        return Ok(false);
    }
    match Stop::lasting(process.pid()).map_err(unreadable)? {
        None => Ok(true),
        Some(stop) if process.may_use_cuda().map_err(unreadable)? => Err(ProcessFailure::of(
            Step::Query,
            process,
            Cause::Stopped(stop),
        )),
        Some(_) => Ok(false),
    }
}

/// Brings processes back, from any state, to the state in which they were found; returns the
/// failures.
///
/// Serves rollback and recovery: it queries the driver, and needs no record of our own steps.
/// Processes for which the GPUs have no room stay CHECKPOINTED. Processes that share GPU memory are
/// unlocked once all of them have it again.
#[must_use]
pub fn bring_back(
    driver: &dyn Driver,
    processes: &[ProcessRef],
    initial_state: &InitialState,
) -> Vec<ProcessFailure> {
    let without_room = room::reserve(driver, processes, initial_state).err();
    initial_state.expect(driver, processes);
    let has_room = |process: &&ProcessRef| {
        let without_room = without_room.as_ref();
        without_room.is_none_or(|without_room| !without_room.has(process))
    };
    let processes: Vec<_> = processes.iter().filter(has_room).cloned().collect();
    let brought = for_each(Step::Unlock, &processes, |process| {
        let found = initial_state.state_of(process);
        match driver.shares_memory(process) {
            true => bring_one_back(driver, process, found.max(SafeState::Locked)),
            false => bring_one_back(driver, process, found),
        }
    });
    let found = |process: &ProcessRef| initial_state.state_of(process);
    let sharing = || {
        let all = processes.iter();
        all.filter(|process| driver.shares_memory(process))
    };
    // A process that is LOCKED beside one that stays CHECKPOINTED was found without the memory.
    let goal = match sharing().any(|process| found(process) == SafeState::Checkpointed) {
        true => SafeState::Running,
        false => SafeState::Locked,
    };
    let is_ready = |process: &&ProcessRef| {
        let has_failed = brought.iter().any(|fault| fault.pid == process.pid());
        found(process) <= goal && !has_failed
    };
    let locked: Vec<_> = sharing().filter(is_ready).cloned().collect();
    let unlocked = unlock_together(driver, &locked, initial_state);
    let without_room = without_room.map(|processes| processes.failures());
    without_room
        .into_iter()
        .flatten()
        .chain(brought)
        .chain(unlocked)
        .filter(|fault| !matches!(fault.cause, Cause::Gone))
        .collect()
}

/// Has LOCKED processes share their memory again, and unlocks those that were found RUNNING. Those
/// that were found LOCKED need it, too: whoever unlocks them knows of no memory to share. Processes
/// that have all of theirs go on, though others do not.
fn unlock_together(
    driver: &dyn Driver,
    locked: &[ProcessRef],
    initial_state: &InitialState,
) -> Vec<ProcessFailure> {
    let shared = locked
        .first()
        .map_or(Ok(()), |first| driver.share_again(first));
    for_each(Step::Unlock, locked, |process| match shared {
        Err(error) if driver.shares_memory(process) => {
            Err(ProcessFailure::of(Step::Unlock, process, error))
        }
        _ => bring_one_back(driver, process, initial_state.state_of(process)),
    })
}

/// As [`bring_back`], of one process for which there is room.
fn bring_one_back(
    driver: &dyn Driver,
    process: &ProcessRef,
    found: SafeState,
) -> Result<(), ProcessFailure> {
    match can_be_queried(process) {
        Ok(true) => {}
        Ok(false) => return Ok(()),
        // `/proc` cannot be read: query the driver anyway, its calls have a deadline.
        Err(fault) if matches!(fault.cause, Cause::Io(_)) => {}
        Err(fault) => return Err(fault),
    }
    let state = match twice(|| driver.state(process)) {
        Err(CudaError::NotInitialized) => return Ok(()),
        other => other.map_err(|error| ProcessFailure::of(Step::Query, process, error))?,
    };
    if found.is_back(state) {
        return Ok(());
    }
    if state == CudaState::Checkpointed {
        let restored = twice(|| driver.restore(process, &GpuMap::identity()));
        restored.map_err(|error| ProcessFailure::of(Step::Restore, process, error))?;
    }
    let is_held = matches!(state, CudaState::Checkpointed | CudaState::Locked);
    let unlocked = match found {
        SafeState::Running if is_held => twice(|| driver.unlock(process)),
        _ => Ok(()),
    };
    let is_back = expect_state(driver, Step::Unlock, process, found.into());
    match unlocked {
        // The error says more than the state after it.
        Err(error) if is_back.is_err() => Err(ProcessFailure::of(Step::Unlock, process, error)),
        _ => is_back,
    }
}

/// Makes a driver call once more if the driver answers with an error, and returns the first error
/// if it does so again: no process is lost for one wrong answer. A call that does not return would
/// not do so the next time.
pub(crate) fn twice<T>(call: impl Fn() -> Result<T, CudaError>) -> Result<T, CudaError> {
    call().or_else(|error| match error {
        CudaError::NoAnswer(_) | CudaError::NoThread(_) | CudaError::Ended => Err(error),
        answer => call().map_err(|_| answer),
    })
}

pub(crate) fn expect_state(
    driver: &dyn Driver,
    step: Step,
    process: &ProcessRef,
    goal: CudaState,
) -> Result<(), ProcessFailure> {
    match twice(|| driver.state(process)) {
        Ok(state) if state == goal => Ok(()),
        Ok(state) => Err(ProcessFailure::of(step, process, Cause::State(state))),
        Err(error) => Err(ProcessFailure::of(step, process, error)),
    }
}

#[cfg(test)]
mod tests;
