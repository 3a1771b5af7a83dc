//! Why a dump failed: CRIU's error does not name a process that ended, or that started CUDA.

use std::thread::sleep;
use std::time::{Duration, Instant};

use stasis_gpu::cuda::gpu_use::CudaProcess;
use stasis_gpu::cuda::process_set::can_be_queried;
use stasis_gpu::cuda::{CudaError, Driver};
use stasis_linux::ProcessRef;

use crate::checkpoint::dump::{Dump, NotDumped};
use crate::container::Container;
use crate::error::kind::Kind;
use crate::error::low_level::LowLevelFailure;
use crate::error::{Failure, chain};
use crate::image::pstree::{self, PstreeError};
use crate::operation::timeline::Timeline;

/// The longest time between a process's open of a GPU and the end of `cuInit`.
const STARTING: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(20);

/// The first explanation that holds; `members` are the processes whose GPU state is in their
/// memory. Keeps CRIU's log. Thaws the container if it asks the driver.
pub(crate) fn explain(
    dump: &Dump<'_, '_>,
    not_dumped: NotDumped,
    members: &[ProcessRef],
    driver: Option<&dyn Driver>,
    timeline: &mut Timeline<'_>,
) -> Failure {
    let ran = match not_dumped {
        NotDumped::Refused(failure) => return failure,
        NotDumped::Failed(ran) => ran,
    };
    if let Some(mismatch) = mismatch(dump) {
        return mismatch.into();
    }
    let failure = dump.low_level_failure(&ran);
    if let Some(ended) = ended(dump, members) {
        let failure = Failure::LowLevel(failure);
        timeline.note(format!("the dump failed: {}", chain(&failure)));
        return PstreeError::without(ended).into();
    }
    let known = [dump.recorded, dump.exec].concat();
    let late = driver.and_then(|driver| started_cuda(driver, dump.container, &known));
    of_dump(failure, late)
}

/// The failure of a dump, caused by the process that started CUDA, if there is one.
pub(crate) fn of_dump(dump: Box<LowLevelFailure>, late: Option<ProcessRef>) -> Failure {
    match late.map(|late| late.to_string()) {
        Some(late) => Failure::CudaStartedDuringDump { late, dump },
        None => Failure::LowLevel(dump),
    }
}

/// Why the script behind the dump refused the image, as [`Dump::verify`] would. Without anything to
/// look at, the dump failed before, or for another reason.
fn mismatch(dump: &Dump<'_, '_>) -> Option<PstreeError> {
    let verified = pstree::verify(dump.image.path(), dump.recorded, dump.exec);
    verified
        .err()
        .filter(|error| error.kind() == Kind::ProcessEnded)
}

/// Finds a process of the image that ended while CRIU dumped it: to CRIU a killed process that the
/// freezer of cgroup v1 holds is "Zombies with threads are not supported".
fn ended<'d>(dump: &Dump<'d, '_>, members: &[ProcessRef]) -> Option<&'d CudaProcess> {
    let is_dying = |member: &&ProcessRef| matches!(member.is_dying(), Ok(true));
    let ending = members.iter().filter(is_dying);
    let pids: Vec<_> = ending
        .map(|member| dump.container.pid_inside(member))
        .collect();
    let mut recorded = dump.recorded.iter();
    recorded.find(|process| pids.contains(&Some(process.pid)))
}

/// Finds a process that uses CUDA and is not in `known`: its GPU state cannot be dumped. Thaws the
/// container for that; the caller restores the freezer's state.
pub(crate) fn started_cuda(
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
