//! The CUDA processes of a container, whatever state each is in: looked at, and brought back.

use std::thread;

use crate::cuda::{CudaError, CudaState, Driver, GpuMap};
use crate::fault::{Cause, Fault, Step};
use crate::process::{Activity, ProcessRef};
use crate::stop::Stop;

/// The outcome of looking: which processes use CUDA, and in what state each is.
pub type Members = Vec<(ProcessRef, CudaState)>;

/// Asks the driver about each process. Processes without CUDA and processes that end meanwhile
/// are left out; any other failure is an error, since an image that silently lacks its GPU state
/// must be impossible.
///
/// # Errors
/// The first process that the driver cannot tell about.
pub fn look(driver: &dyn Driver, processes: Vec<ProcessRef>) -> Result<Members, Fault> {
    let mut members = Vec::new();
    for process in processes {
        if !can_answer(&process)? {
            continue;
        }
        match driver.state(process.pid()) {
            Ok(state) => members.push((process, state)),
            Err(CudaError::NotInitialized) => {}
            Err(_) if process.is_gone() => {}
            Err(error) => return Err(Fault::of(Step::Look, &process, error)),
        }
    }
    Ok(members)
}

/// Whether the driver may be asked about a process. It needs the process to run: asked about the
/// state of a stopped or frozen one it never answers (measured on driver 580.159).
pub(crate) fn can_answer(process: &ProcessRef) -> Result<bool, Fault> {
    let unreadable = |error| Fault::of(Step::Look, process, Cause::Io(error));
    if process.activity().map_err(unreadable)? == Activity::Zombie {
        return Ok(false);
    }
    match Stop::of(process.pid()).map_err(unreadable)? {
        None => Ok(true),
        Some(stop) if process.may_use_cuda().map_err(unreadable)? => {
            Err(Fault::of(Step::Look, process, Cause::Stopped(stop)))
        }
        Some(_) => Ok(false),
    }
}

/// Brings processes back to RUNNING from whatever state each is in; returns those it could not.
///
/// This is roll-back and recovery in one: it asks the driver what is, not us what we did.
#[must_use]
pub fn revive(driver: &dyn Driver, processes: &[ProcessRef]) -> Vec<Fault> {
    let restored = for_each(processes, |process| revive_one(driver, process));
    restored
        .into_iter()
        .filter(|fault| !matches!(fault.cause, Cause::Gone))
        .collect()
}

/// As [`revive`], of one process.
pub(crate) fn revive_one(driver: &dyn Driver, process: &ProcessRef) -> Result<(), Fault> {
    if !can_answer(process)? {
        return Ok(());
    }
    let pid = process.pid();
    let state = match driver.state(pid) {
        Err(CudaError::NotInitialized) => return Ok(()),
        other => other.map_err(|error| Fault::of(Step::Look, process, error))?,
    };
    if state == CudaState::Checkpointed {
        let restored = driver.restore(pid, &GpuMap::identity());
        restored.map_err(|error| Fault::of(Step::Restore, process, error))?;
    }
    if matches!(state, CudaState::Checkpointed | CudaState::Locked) {
        driver
            .unlock(pid)
            .map_err(|error| Fault::of(Step::Unlock, process, error))?;
    }
    expect_state(driver, Step::Unlock, process, CudaState::Running)
}

pub(crate) fn expect_state(
    driver: &dyn Driver,
    step: Step,
    process: &ProcessRef,
    goal: CudaState,
) -> Result<(), Fault> {
    match driver.state(process.pid()) {
        Ok(state) if state == goal => Ok(()),
        Ok(state) => Err(Fault::of(step, process, Cause::State(state))),
        Err(error) => Err(Fault::of(step, process, error)),
    }
}

/// Calls `work` for every process, each in a thread of its own, and collects the failures.
pub(crate) fn for_each(
    processes: &[ProcessRef],
    work: impl Fn(&ProcessRef) -> Result<(), Fault> + Sync,
) -> Vec<Fault> {
    thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = processes
            .iter()
            .map(|process| scope.spawn(move || work(process)))
            .collect();
        let finished = running.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        finished.filter_map(Result::err).collect()
    })
}
