//! One process, or two independent ones, through the driver's states.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;

use std::time::Duration;

use crate::by_pid::ByPid;
use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use stasis_gpu::cuda::{CudaError, CudaState, GpuMap, GpuUuid};
use stasis_integration::host::c_build;

use crate::nodes::holds_device;
use crate::workload::Workload;
use crate::{MOMENT, PATIENCE, bring_back, caller, driver, lock, put_away};

fn all_threads_are_stopped(pid: i32) -> Result<bool> {
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let stat = fs::read_to_string(thread?.path().join("stat"))?;
        if !stat
            .rsplit(") ")
            .next()
            .is_some_and(|state| state.starts_with('T'))
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Another process than this test's own: calls that move processes to another GPU make the caller
/// one that uses CUDA (seen on driver 580.159).
#[test]
fn a_process_without_cuda_is_not_initialized() -> Result<()> {
    let mut other = Command::new("sleep").arg("60").spawn()?;
    let pid = i32::try_from(other.id())?;
    let not_initialized = CudaError::NotInitialized;
    assert_eq!(driver().state(pid), Err(not_initialized));
    assert_eq!(driver().restore_thread(pid), Err(not_initialized));
    assert_eq!(lock(pid), Err(not_initialized));
    other.kill()?;
    other.wait()?;
    Ok(())
}

#[test]
fn the_restore_thread_is_a_thread_of_the_process() -> Result<()> {
    let counter = Workload::counter()?;
    assert_eq!(counter.ask()?, "101");
    let pid = counter.pid();
    let thread = driver().restore_thread(pid)?;
    assert_ne!(thread, pid);
    assert!(Path::new(&format!("/proc/{pid}/task/{thread}")).exists());
    Ok(())
}

/// The reason why the engine thaws a container before it asks, and refuses a stopped CUDA process.
#[test]
fn a_stopped_process_gets_no_answer_until_it_runs_again() -> Result<()> {
    let counter = Workload::counter()?;
    assert_eq!(counter.ask()?, "101");
    let pid = counter.pid();
    let signal = |signal| kill(Pid::from_raw(pid), signal);
    signal(Signal::SIGSTOP)?;
    // The signal stops one thread after the other.
    while !all_threads_are_stopped(pid)? {
        thread::sleep(Duration::from_millis(1));
    }
    let (sender, answer) = mpsc::channel();
    let asking = thread::spawn(move || sender.send(driver().state(pid)));
    let early = answer.recv_timeout(MOMENT);
    signal(Signal::SIGCONT)?;
    assert_eq!(early, Err(RecvTimeoutError::Timeout));
    assert_eq!(answer.recv_timeout(PATIENCE)?, Ok(CudaState::Running));
    assert!(asking.join().is_ok());
    assert_eq!(counter.ask()?, "102");
    Ok(())
}

#[test]
fn a_full_cycle_keeps_all_memory_and_frees_the_device() -> Result<()> {
    let memcheck = Workload::memcheck(64)?;
    assert_eq!(memcheck.ask()?, "ok 0");
    let pid = memcheck.pid();
    for generation in 1..=2 {
        assert_eq!(driver().state(pid), Ok(CudaState::Running));
        assert!(holds_device(pid)?);
        lock(pid)?;
        assert_eq!(driver().state(pid), Ok(CudaState::Locked));
        assert!(holds_device(pid)?);
        driver().checkpoint(pid)?;
        assert_eq!(driver().state(pid), Ok(CudaState::Checkpointed));
        assert!(!holds_device(pid)?, "CRIU could not dump the process");
        driver().restore(pid, &GpuMap::identity())?;
        assert_eq!(driver().state(pid), Ok(CudaState::Locked));
        assert!(holds_device(pid)?);
        driver().unlock(pid)?;
        assert_eq!(driver().state(pid), Ok(CudaState::Running));
        assert_eq!(memcheck.ask()?, format!("ok {generation}"));
    }
    Ok(())
}

#[test]
fn calls_in_the_wrong_order_are_refused_and_do_no_harm() -> Result<()> {
    let counter = Workload::counter()?;
    assert_eq!(counter.ask()?, "101");
    let pid = counter.pid();
    let (driver, illegal) = (driver(), Err(CudaError::IllegalState));
    let restore = || driver.restore(pid, &GpuMap::identity());

    assert_eq!(driver.checkpoint(pid), illegal, "checkpoint while RUNNING");
    assert_eq!(restore(), illegal, "restore while RUNNING");
    assert_eq!(driver.unlock(pid), illegal, "unlock while RUNNING");
    assert_eq!(driver.state(pid), Ok(CudaState::Running));

    lock(pid)?;
    assert_eq!(lock(pid), illegal, "lock while LOCKED");
    assert_eq!(restore(), illegal, "restore while LOCKED");
    assert_eq!(driver.state(pid), Ok(CudaState::Locked));

    driver.checkpoint(pid)?;
    assert_eq!(lock(pid), illegal, "lock while CHECKPOINTED");
    assert_eq!(
        driver.checkpoint(pid),
        illegal,
        "checkpoint while CHECKPOINTED"
    );
    assert_eq!(driver.unlock(pid), illegal, "unlock while CHECKPOINTED");
    assert_eq!(driver.state(pid), Ok(CudaState::Checkpointed));

    bring_back(pid)?;
    assert_eq!(counter.ask()?, "102");
    Ok(())
}

#[test]
fn cuda_calls_wait_until_the_process_is_unlocked() -> Result<()> {
    let counter = Workload::counter()?;
    assert_eq!(counter.ask()?, "101");
    let pid = counter.pid();
    lock(pid)?;
    let question = counter.send()?;
    assert_eq!(
        question.answer_within(MOMENT)?,
        None,
        "answered while LOCKED"
    );
    driver().checkpoint(pid)?;
    assert_eq!(
        question.answer_within(MOMENT)?,
        None,
        "answered while CHECKPOINTED"
    );
    driver().restore(pid, &GpuMap::identity())?;
    assert_eq!(
        question.answer_within(MOMENT)?,
        None,
        "answered before unlock"
    );
    driver().unlock(pid)?;
    assert_eq!(question.answer()?, "102");
    assert_eq!(counter.ask()?, "103");
    Ok(())
}

#[test]
fn managed_memory_stops_the_checkpoint_and_unlock_frees_the_process() -> Result<()> {
    let memcheck = Workload::managed()?;
    assert_eq!(memcheck.ask()?, "ok 0");
    let pid = memcheck.pid();
    assert_eq!(put_away(pid), Err(CudaError::NotSupported));
    assert_eq!(driver().state(pid), Ok(CudaState::Locked));
    driver().unlock(pid)?;
    assert_eq!(memcheck.ask()?, "ok 1");
    Ok(())
}

#[test]
fn a_restore_onto_gpus_that_the_process_never_had_is_refused() -> Result<()> {
    let counter = Workload::counter()?;
    assert_eq!(counter.ask()?, "101");
    let pid = counter.pid();
    put_away(pid)?;
    let nowhere = GpuUuid::from_bytes([0xee; 16]);
    let map = GpuMap::new(vec![(nowhere, nowhere)]);
    assert_eq!(driver().restore(pid, &map), Err(CudaError::InvalidValue));
    assert_eq!(driver().state(pid), Ok(CudaState::Checkpointed));
    Ok(())
}

#[test]
fn processes_are_moved_at_the_same_time_without_touching_each_other() -> Result<()> {
    let workloads = [Workload::memcheck(32)?, Workload::memcheck(48)?];
    for workload in &workloads {
        assert_eq!(workload.ask()?, "ok 0");
    }
    let pids = workloads.each_ref().map(Workload::pid);
    at_once(pids, put_away)?;
    for pid in pids {
        assert_eq!(driver().state(pid), Ok(CudaState::Checkpointed));
    }
    at_once(pids, bring_back)?;
    for workload in &workloads {
        assert_eq!(workload.ask()?, "ok 1");
    }
    Ok(())
}

fn at_once(pids: [i32; 2], step: fn(i32) -> Result<(), CudaError>) -> Result<()> {
    std::thread::scope(|scope| {
        let steps = pids.map(|pid| scope.spawn(move || step(pid)));
        for step in steps {
            step.join().unwrap()?;
        }
        Ok(())
    })
}

#[test]
fn the_driver_finishes_what_a_killed_caller_began() -> Result<()> {
    // The real driver needs a while for 2 GiB; the stand-in has an order to be slow.
    let memcheck = Workload::memcheck(if c_build::has_gpu() { 2048 } else { 16 })?;
    assert_eq!(memcheck.ask()?, "ok 0");
    let pid = memcheck.pid();
    lock(pid)?;
    let state = caller::kill_during_checkpoint(pid, || driver().state(pid))
        .context("killing the caller of a checkpoint")?;
    assert_eq!(state, CudaState::Checkpointed);
    bring_back(pid)?;
    assert_eq!(memcheck.ask()?, "ok 1");
    Ok(())
}
