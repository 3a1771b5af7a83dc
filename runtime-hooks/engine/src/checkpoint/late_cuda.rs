//! Finds a process that started CUDA after the pre-flight. Its GPU state cannot be dumped, and
//! CRIU's error does not name that reason.

use std::thread::sleep;
use std::time::{Duration, Instant};

use stasis_gpu::cuda::gpu_use::CudaProcess;
use stasis_gpu::cuda::process_set::can_be_queried;
use stasis_gpu::cuda::{CudaError, Driver};
use stasis_linux::ProcessRef;

use crate::container::Container;
use crate::error::Failure;
use crate::error::low_level::LowLevelFailure;

/// The longest time between a process's open of a GPU and the end of `cuInit`.
const STARTING: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(20);

/// After a failed dump: adds to the failure that a process not in `known` uses CUDA now, if so.
pub(crate) fn explain(
    driver: &dyn Driver,
    container: &Container,
    known: &[CudaProcess],
    failure: Failure,
) -> Failure {
    let Failure::LowLevel(dump) = failure else {
        return failure;
    };
    match find(driver, container, known) {
        Some(late) => cuda_started_during_dump(&late, dump),
        None => Failure::LowLevel(dump),
    }
}

/// The failure of a dump that this process caused.
pub(crate) fn cuda_started_during_dump(late: &ProcessRef, dump: Box<LowLevelFailure>) -> Failure {
    Failure::CudaStartedDuringDump {
        late: late.to_string(),
        dump,
    }
}

/// Finds a process that uses CUDA and is not in `known`. Thaws the container for that; the caller
/// restores the freezer's state.
pub(crate) fn find(
    driver: &dyn Driver,
    container: &Container,
    known: &[CudaProcess],
) -> Option<ProcessRef> {
    // A frozen process does not answer, and cannot finish `cuInit`.
    container.cgroup().thaw().ok()?;
    let deadline = Instant::now() + STARTING;
    loop {
        let mut is_one_starting = false;
        for process in container.snapshot().ok()?.into_candidates() {
            let pid = container.pid_inside(&process);
            if known.iter().any(|member| Some(member.pid) == pid) {
                continue;
            }
            match use_of_cuda(driver, &process) {
                Use::Yes => return Some(process),
                Use::Starting => is_one_starting = true,
                Use::No => {}
            }
        }
        if !is_one_starting || Instant::now() > deadline {
            return None;
        }
        sleep(POLL);
    }
}

enum Use {
    Yes,
    /// The process has a GPU open, but the driver does not know it, or not yet.
    Starting,
    No,
}

fn use_of_cuda(driver: &dyn Driver, process: &ProcessRef) -> Use {
    if !matches!(can_be_queried(process), Ok(true)) {
        return Use::No;
    }
    let has_device = || matches!(process.has_nvidia_device(), Ok(true));
    match driver.state(process) {
        Ok(_) => Use::Yes,
        Err(CudaError::NotInitialized) if has_device() => Use::Starting,
        Err(CudaError::NotInitialized) => Use::No,
        Err(_) if has_device() => Use::Yes,
        Err(_) => Use::No,
    }
}
