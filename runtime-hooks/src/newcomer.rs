//! A process that starts CUDA after the container was looked at. What it has of the GPU then cannot
//! be dumped, and CRIU does not say that this is the reason.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::container::Container;
use crate::cuda::{CudaError, Driver};
use crate::error::{Failure, LowLevelFailure};
use crate::manifest::CudaProcess;
use crate::members::can_answer;
use crate::process::ProcessRef;

/// How long a process that has opened a GPU may take until the driver knows it (`cuInit`).
const STARTING: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(20);

/// Says of a dump that failed whether a process that is not in `known` uses CUDA now.
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
        Some(newcomer) => overtaken(&newcomer, dump),
        None => Failure::LowLevel(dump),
    }
}

/// The failure of a dump that this process was in the way of.
pub(crate) fn overtaken(newcomer: &ProcessRef, dump: Box<LowLevelFailure>) -> Failure {
    Failure::Overtaken {
        newcomer: newcomer.to_string(),
        dump,
    }
}

/// A process that uses CUDA and is not in `known`. The container is thawed for that; to put the
/// freezer back is the caller's part.
pub(crate) fn find(
    driver: &dyn Driver,
    container: &Container,
    known: &[CudaProcess],
) -> Option<ProcessRef> {
    // A frozen process does not answer, and one that has not finished starting never would.
    container.cgroup().thaw().ok()?;
    let deadline = Instant::now() + STARTING;
    loop {
        let mut is_one_starting = false;
        for process in container.processes().ok()? {
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
    /// It has a GPU open, and the driver does not know it, or not yet.
    Starting,
    No,
}

fn use_of_cuda(driver: &dyn Driver, process: &ProcessRef) -> Use {
    if !matches!(can_answer(process), Ok(true)) {
        return Use::No;
    }
    let has_device = || matches!(process.has_nvidia_device(), Ok(true));
    match driver.state(process.pid()) {
        Ok(_) => Use::Yes,
        Err(CudaError::NotInitialized) if has_device() => Use::Starting,
        Err(CudaError::NotInitialized) => Use::No,
        Err(_) if has_device() => Use::Yes,
        Err(_) => Use::No,
    }
}
