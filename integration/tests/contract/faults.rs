//! Failures of the driver that occur only by order.

use crate::by_pid::ByPid;
use anyhow::{Result, ensure};
use stasis_gpu::cuda::{CudaError, CudaState, GpuMap};
use stasis_integration::needs;

use crate::workload::Workload;
use crate::{caller, driver, lock, put_away};

#[test]
fn a_lock_whose_timeout_passes_leaves_the_process_running() -> Result<()> {
    needs!(StandIn);
    let counter = counting()?;
    let pid = counter.pid();
    let answer = caller::call_with_fault("lock contract busy", "lock", pid)?;
    assert_eq!(answer, CudaError::NotReady.code());
    assert_eq!(driver().state(pid), Ok(CudaState::Running));
    assert_eq!(counter.ask()?, "102");
    Ok(())
}

#[test]
fn a_fault_is_for_the_named_process_alone() -> Result<()> {
    needs!(StandIn);
    let counter = counting()?;
    let answer = caller::call_with_fault("lock other busy", "lock", counter.pid())?;
    assert_eq!(answer, 0);
    Ok(())
}

#[test]
fn a_restore_without_room_loses_the_process_for_good() -> Result<()> {
    needs!(StandIn);
    let counter = counting()?;
    let pid = counter.pid();
    put_away(pid)?;
    let answer = caller::call_with_fault("memory 1", "restore", pid)?;
    assert_eq!(answer, CudaError::OutOfMemory.code());
    let restore = || driver().restore(pid, &GpuMap::identity());
    assert_eq!(restore(), Err(CudaError::OperatingSystem));
    assert_eq!(restore(), Err(CudaError::OperatingSystem));
    assert_eq!(driver().state(pid), Ok(CudaState::Checkpointed));
    Ok(())
}

#[test]
fn an_ordered_error_leaves_the_state_as_it_was() -> Result<()> {
    needs!(StandIn);
    let counter = counting()?;
    let pid = counter.pid();
    lock(pid)?;
    let answer = caller::call_with_fault("checkpoint * error:999", "checkpoint", pid)?;
    assert_eq!(answer, 999);
    assert_eq!(driver().state(pid), Ok(CudaState::Locked));
    driver().unlock(pid)?;
    assert_eq!(counter.ask()?, "102");
    Ok(())
}

#[test]
fn a_process_that_dies_in_a_call_ends_the_call() -> Result<()> {
    needs!(StandIn);
    let counter = counting()?;
    let answer = caller::call_with_fault("lock * crash", "lock", counter.pid())?;
    assert_eq!(answer, CudaError::OperatingSystem.code());
    Ok(())
}

fn counting() -> Result<Workload> {
    let counter = Workload::counter()?;
    ensure!(counter.ask()? == "101", "the counter does not count");
    Ok(counter)
}
