//! Members that were found LOCKED or CHECKPOINTED.

use super::*;
use crate::cuda::gpu_use::GpuBytes;
use crate::cuda::process_set::initial_state::ProcessId;

/// A process is as free in the end as it was found, also if a step fails.
#[test]
fn who_was_found_held_stays_so() {
    let found = [
        (CudaState::Running, SafeState::Running),
        (CudaState::Locked, SafeState::Locked),
        (CudaState::Checkpointed, SafeState::Checkpointed),
    ];
    for fails in [false, true] {
        let (driver, sleepers, pids) = three(CudaState::Running);
        for (pid, (state, _)) in pids.iter().zip(found) {
            driver.set(*pid, state);
        }
        let members = sleepers.members(&driver).unwrap();
        let members = members.iter().zip(found);
        let initial_state = members
            .map(|((process, _), (_, safe))| (ProcessId::of(process), (safe, GpuBytes::new())));
        let job = CudaJob::lock(&driver, LIMIT, initial_state.collect(), || {
            sleepers.members(&driver)
        });
        if fails {
            driver.fail(Step::Checkpoint, pids[1], &[CudaError::NotSupported]);
            let error = job.unwrap().checkpoint().unwrap_err();
            assert!(error.lost.is_empty());
        } else {
            let job = job.unwrap().checkpoint().unwrap();
            assert!(driver.all_are(CudaState::Checkpointed));
            job.restore(&GpuMap::identity()).unwrap().unlock().unwrap();
        }
        for (pid, (state, _)) in pids.iter().zip(found) {
            assert_eq!(driver.states.lock().unwrap()[pid], state, "fails: {fails}");
        }
    }
}
