use super::*;
use crate::cuda::GpuUuid;

/// A map of one GPU to another.
fn map() -> GpuMap {
    let gpu = |byte| GpuUuid::from_bytes([byte; 16]);
    GpuMap::new(vec![(gpu(1), gpu(2))])
}

/// Their own GPUs may be full, and a restore there would lose them.
#[test]
fn those_that_the_gpus_of_a_map_do_not_take_stay_suspended() {
    let (driver, sleepers, pids) = three(CudaState::Checkpointed);
    for pid in &pids {
        driver.fail(Step::Restore, *pid, &[CudaError::InvalidValue]);
    }
    let processes = sleepers.processes()[..3].to_vec();
    let job = CudaJob::of_restored(&driver, processes).unwrap();
    let error = job.restore(&map()).unwrap_err();
    assert!(matches!(
        error.fault.cause,
        Cause::Driver(CudaError::InvalidValue)
    ));
    assert!(driver.all_are(CudaState::Checkpointed));
    assert_eq!(error.lost.len(), 3);
    assert!(error.lost.iter().all(ProcessFailure::is_suspended));
}

#[test]
fn those_that_they_take_run() {
    let (driver, sleepers, pids) = three(CudaState::Checkpointed);
    driver.fail(Step::Restore, pids[1], &[CudaError::InvalidValue]);
    let processes = sleepers.processes()[..3].to_vec();
    let job = CudaJob::of_restored(&driver, processes).unwrap();
    let error = job.restore(&map()).unwrap_err();
    let lost: Vec<_> = error
        .lost
        .iter()
        .map(|one| (one.pid, one.is_suspended()))
        .collect();
    assert_eq!(lost, [(pids[1], true)]);
    let states = driver.states.lock().unwrap();
    let now: Vec<_> = pids.iter().map(|pid| states[pid]).collect();
    assert_eq!(
        now,
        [
            CudaState::Running,
            CudaState::Checkpointed,
            CudaState::Running
        ]
    );
}
