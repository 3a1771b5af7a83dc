use super::*;
use crate::cuda::gpu_use::GpuBytes;
use crate::cuda::process_set::initial_state::{ProcessId, SafeState};

/// Three processes that are checkpointed; the first two share memory that was given up.
fn two_share() -> (FakeDriver, Sleepers, Vec<i32>) {
    let (driver, sleepers, pids) = three(CudaState::Checkpointed);
    driver.sharing.lock().unwrap().extend(&pids[..2]);
    (driver, sleepers, pids)
}

/// The states in which processes were found.
fn found(each: &[(i32, SafeState)]) -> InitialState {
    let found = each.iter().map(|(pid, state)| {
        let process = ProcessRef::open(*pid).unwrap().unwrap();
        (ProcessId::of(&process), (*state, GpuBytes::new()))
    });
    found.collect()
}

fn state(driver: &FakeDriver, pid: i32) -> CudaState {
    driver.states.lock().unwrap()[&pid]
}

#[test]
fn they_share_again_before_one_of_them_is_unlocked() {
    let (driver, sleepers, _) = two_share();
    let failures = bring_back(&driver, &sleepers.processes(), &InitialState::default());
    assert!(failures.is_empty(), "{failures:?}");
    assert!(driver.all_are(CudaState::Running));
    assert!(driver.sharing.lock().unwrap().is_empty());
}

#[test]
fn none_of_them_is_unlocked_if_one_is_not_restored() {
    let (driver, sleepers, pids) = two_share();
    let refused = [CudaError::OutOfMemory; 4];
    driver.fail(Step::Restore, pids[1], &refused);
    let failures = bring_back(&driver, &sleepers.processes(), &InitialState::default());
    let mut failed: Vec<i32> = failures.iter().map(|fault| fault.pid).collect();
    failed.sort_unstable();
    assert_eq!(failed, pids[..2]);
    let of_first = failures.iter().find(|fault| fault.pid == pids[0]).unwrap();
    let cause = &of_first.cause;
    assert!(
        matches!(cause, Cause::NotAsked(CudaError::SharedMemoryAway)),
        "{cause:?}"
    );
    assert_eq!(state(&driver, pids[0]), CudaState::Locked);
    assert_eq!(state(&driver, pids[2]), CudaState::Running);
    // Once the second can be restored, both go on.
    driver.script.lock().unwrap().clear();
    let failures = bring_back(&driver, &sleepers.processes(), &InitialState::default());
    assert!(failures.is_empty(), "{failures:?}");
    assert!(driver.all_are(CudaState::Running));
}

#[test]
fn who_stays_checkpointed_shares_nothing() {
    let (driver, sleepers, pids) = two_share();
    let found = found(&[
        (pids[0], SafeState::Checkpointed),
        (pids[1], SafeState::Checkpointed),
    ]);
    let failures = bring_back(&driver, &sleepers.processes(), &found);
    assert!(failures.is_empty(), "{failures:?}");
    assert_eq!(state(&driver, pids[0]), CudaState::Checkpointed);
    assert_eq!(driver.sharing.lock().unwrap().len(), 2);
}

/// An operator has locked them; then a checkpoint failed.
#[test]
fn those_that_were_found_locked_share_again() {
    let (driver, sleepers, pids) = two_share();
    let found = found(&[(pids[0], SafeState::Locked), (pids[1], SafeState::Locked)]);
    let failures = bring_back(&driver, &sleepers.processes(), &found);
    assert!(failures.is_empty(), "{failures:?}");
    assert_eq!(state(&driver, pids[0]), CudaState::Locked);
    assert!(driver.sharing.lock().unwrap().is_empty());
}

#[test]
fn who_was_found_locked_beside_one_that_stays_checkpointed_is_left_so() {
    let (driver, sleepers, pids) = two_share();
    let found = found(&[
        (pids[0], SafeState::Locked),
        (pids[1], SafeState::Checkpointed),
    ]);
    let failures = bring_back(&driver, &sleepers.processes(), &found);
    assert!(failures.is_empty(), "{failures:?}");
    assert_eq!(state(&driver, pids[0]), CudaState::Locked);
    assert_eq!(driver.sharing.lock().unwrap().len(), 2);
}

#[test]
fn a_restored_job_shares_again_whatever_comes_next() {
    let (driver, sleepers, _) = two_share();
    let processes = sleepers.processes()[..3].to_vec();
    let job = CudaJob::of_restored(&driver, processes).unwrap();
    let job = job.restore(&GpuMap::identity()).unwrap();
    assert!(driver.sharing.lock().unwrap().is_empty());
    assert!(driver.all_are(CudaState::Locked));
    job.unlock().unwrap();
}

/// NVIDIA's program has restored them, one by one.
#[test]
fn a_job_that_was_found_locked_shares_again_before_its_unlock() {
    let (driver, sleepers, _) = two_share();
    let processes = sleepers.processes()[..3].to_vec();
    for process in &processes {
        driver.restore(process, &GpuMap::identity()).unwrap();
    }
    let job = CudaJob::<Locked>::new(&driver, InitialState::default(), processes);
    job.unlock().unwrap();
    assert!(driver.sharing.lock().unwrap().is_empty());
    assert!(driver.all_are(CudaState::Running));
}

/// The checkpoint of a suspended job that is left running.
#[test]
fn a_job_that_stays_checkpointed_shares_nothing() {
    let (driver, sleepers, pids) = two_share();
    let found = found(&[
        (pids[0], SafeState::Checkpointed),
        (pids[1], SafeState::Checkpointed),
    ]);
    let job = CudaJob::<Checkpointed>::new(&driver, found, sleepers.processes()[..2].to_vec());
    let job = job.restore(&GpuMap::identity()).unwrap();
    job.unlock().unwrap();
    assert_eq!(state(&driver, pids[0]), CudaState::Checkpointed);
    assert_eq!(driver.sharing.lock().unwrap().len(), 2);
}

#[test]
fn a_restored_job_that_does_not_share_again_is_not_unlocked() {
    let (driver, sleepers, pids) = two_share();
    // The memory is shared with a process of another container.
    driver.sharing.lock().unwrap().insert(1);
    let processes = sleepers.processes()[..3].to_vec();
    let job = CudaJob::of_restored(&driver, processes).unwrap();
    let error = job.restore(&GpuMap::identity()).unwrap_err();
    let cause = &error.fault.cause;
    assert!(
        matches!(cause, Cause::NotAsked(CudaError::SharedMemoryAway)),
        "{cause:?}"
    );
    assert_eq!(error.lost.len(), 2);
    assert_eq!(state(&driver, pids[0]), CudaState::Locked);
    assert_eq!(state(&driver, pids[1]), CudaState::Locked);
}

/// Another pair of the same container has its memory.
#[test]
fn whose_owner_has_ended_keeps_nobody_else() {
    let (driver, sleepers, pids) = two_share();
    driver.sharing.lock().unwrap().insert(pids[2]);
    driver.ownerless.lock().unwrap().insert(pids[2]);
    let processes = sleepers.processes()[..3].to_vec();
    let job = CudaJob::of_restored(&driver, processes).unwrap();
    let error = job.restore(&GpuMap::identity()).unwrap_err();
    let cause = |fault: &ProcessFailure| match &fault.cause {
        Cause::NotAsked(error) => Some(*error),
        _ => None,
    };
    let lost: Vec<_> = error.lost.iter().map(|one| (one.pid, cause(one))).collect();
    assert_eq!(lost, [(pids[2], Some(CudaError::SharedMemoryLost))]);
    assert_eq!(state(&driver, pids[2]), CudaState::Locked);
    for pid in &pids[..2] {
        assert_eq!(state(&driver, *pid), CudaState::Running);
    }
}
