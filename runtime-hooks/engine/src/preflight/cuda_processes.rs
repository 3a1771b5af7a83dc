//! Finds the container's CUDA processes by querying the driver about each process.

use std::io;
use std::sync::Arc;

use stasis_gpu::cuda::failure::{Cause, ProcessFailure, Step};
use stasis_gpu::cuda::process_set::{ProcessStates, query_states};
use stasis_gpu::cuda::stopped::Stop;
use stasis_gpu::cuda::watchdog::{CallLimits, MARGIN, WatchedDriver};
use stasis_gpu::cuda::{CudaDriver, OpenError};
use stasis_gpu::gpu_path::CopyingDriver;
use stasis_linux::{ProcessRef, Snapshot};

use crate::container::Container;
use crate::context::Context;
use crate::operation::{directory_of, peek};

/// The CUDA processes of a container and the driver that knows them.
#[derive(Debug)]
pub struct CudaMembers {
    /// The driver library.
    pub driver: WatchedDriver,
    /// The driver beneath it.
    pub copying: Arc<CopyingDriver>,
    /// The processes with their states; not empty.
    pub members: ProcessStates,
}

/// An error of finding the CUDA processes.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum FindError {
    #[error(transparent)]
    Processes(#[from] io::Error),
    #[error(transparent)]
    Driver(#[from] OpenError),
    #[error(transparent)]
    Process(#[from] ProcessFailure),
}

/// Finds the CUDA processes of a snapshot of the container; `None` if it has none. The container
/// must not be frozen if any of its processes may use CUDA: the driver would never answer.
///
/// # Errors
/// [`FindError`]; also if there is no driver although a process has a GPU open: "no driver" must
/// not count as "no CUDA".
pub fn cuda_members(
    context: &Context,
    container: &Container,
    snapshot: &Snapshot,
) -> Result<Option<CudaMembers>, FindError> {
    let candidates = snapshot.candidates();
    let (driver, copying) = match open(context, container.id()) {
        Ok(opened) => opened,
        Err(error) => return without_driver(error, candidates).map(|()| None),
    };
    refuse_frozen_ancestor(container, candidates)?;
    let members = query_states(&driver, candidates.to_vec())?;
    Ok((!members.is_empty()).then_some(CudaMembers {
        driver,
        copying,
        members,
    }))
}

/// Opens the driver for the processes of the container `id`. After a killed operation the driver
/// may still work on a process, and until it is done not even a state query returns (measured on
/// driver 580.159); so queries may then take as long as the work itself.
pub fn open_driver(context: &Context, id: &str) -> Result<WatchedDriver, OpenError> {
    open(context, id).map(|(driver, _)| driver)
}

fn open(context: &Context, id: &str) -> Result<(WatchedDriver, Arc<CopyingDriver>), OpenError> {
    let driver = CudaDriver::open(context.settings.driver.libcuda.as_deref())?;
    let deadlines = &context.settings.deadlines;
    let work = deadlines.driver();
    let directory = directory_of(&context.settings.paths.state_dir, &context.root, id);
    let answer = match peek(&context.settings.paths.state_dir, &context.root, id) {
        Ok(None) => deadlines.lock() + MARGIN,
        _ => work.max(deadlines.lock() + MARGIN),
    };
    let copying = Arc::new(CopyingDriver::new(
        Arc::new(driver),
        &context.settings,
        &directory,
    ));
    let driver = WatchedDriver::new(copying.clone(), CallLimits { answer, work });
    Ok((driver, copying))
}

/// Refuses a container below a frozen cgroup, also one that is paused itself: a frozen process does
/// not answer the driver, and stasis does not thaw cgroups of others. A container without processes
/// that may use CUDA can be dumped as it is.
///
/// # Errors
/// Names the first process that may use CUDA.
pub(crate) fn refuse_below_frozen(container: &Container) -> Result<(), FindError> {
    // A freezer that cannot be read is left to the watchdog.
    let Ok(Some(above)) = container.cgroup().frozen_ancestor() else {
        return Ok(());
    };
    let snapshot = container.snapshot()?;
    snapshot.candidates().first().map_or(Ok(()), |process| {
        let cause = Cause::Stopped(Stop::FrozenAncestor(Some(above)));
        Err(ProcessFailure::of(Step::Query, process, cause).into())
    })
}

/// Refuses if the container is frozen, which is thawed by then: a cgroup above it is.
///
/// # Errors
/// Names the first process that may use CUDA.
pub(crate) fn refuse_frozen_ancestor(
    container: &Container,
    candidates: &[ProcessRef],
) -> Result<(), ProcessFailure> {
    // A freezer that cannot be read is left to the watchdog.
    if !matches!(container.cgroup().is_frozen_or_freezing(), Ok(true)) {
        return Ok(());
    }
    candidates.first().map_or(Ok(()), |process| {
        let cause = Cause::Stopped(Stop::from_above(container.cgroup()));
        Err(ProcessFailure::of(Step::Query, process, cause))
    })
}

/// Without a driver no process has GPU state, unless one has an NVIDIA device open.
///
/// # Errors
/// A process has an NVIDIA device open.
pub(crate) fn without_driver(error: OpenError, processes: &[ProcessRef]) -> Result<(), FindError> {
    for process in processes {
        if process.has_nvidia_device()? {
            return Err(match error {
                OpenError::NotFound => {
                    ProcessFailure::of(Step::Query, process, Cause::NoDriver).into()
                }
                other => FindError::Driver(other),
            });
        }
    }
    Ok(())
}
