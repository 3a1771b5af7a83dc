//! Moves the GPU state of the processes into host memory.

use stasis_gpu::cuda::Driver;
use stasis_gpu::cuda::job::{Checkpointed, CudaJob, Locked};
use stasis_gpu::ledger::WaitLimit;
use stasis_gpu::ledger::amounts::{Amounts, Resource};
use stasis_linux::ProcessRef;

use crate::checkpoint::captured::Captured;
use crate::checkpoint::plan::{Plan, query_again};
use crate::checkpoint::route::GpuContentsRoute;
use crate::container::host_memory::{self, HostRoom};
use crate::error::Failure;
use crate::operation::estimate::ProgressEstimate;
use crate::operation::timeline::Timeline;

/// Locks all CUDA processes of the container.
///
/// # Errors
/// [`Failure::Job`]; every process has been brought back.
pub(super) fn lock<'p>(
    plan: &'p Plan<'_>,
    captured: &Captured,
) -> Result<CudaJob<'p, Locked>, Failure> {
    let deadline = plan.context.settings.deadlines.lock();
    Ok(CudaJob::lock(
        &plan.driver,
        deadline,
        captured.intent.initial_state(),
        || query_again(&plan.driver, &plan.container),
    )?)
}

/// Notes processes that ended during the checkpoint. The checkpoint does not need them, but the
/// driver may have ended them.
pub(super) fn note_ended(
    plan: &Plan<'_>,
    members: &[ProcessRef],
    captured: &Captured,
    timeline: &mut Timeline<'_>,
) {
    for known in captured.intent.processes() {
        let is_there = |member: &ProcessRef| plan.container.pid_inside(member) == Some(known.pid);
        if !members.iter().any(is_there) {
            let (pid, name) = (known.pid, &known.name);
            timeline.note(format!(
                "process {pid} of the container ({name}) ended before all were locked"
            ));
        }
    }
}

/// Admits GPU contents that the driver moves into the container's memory: they may have grown since
/// the pre-flight. Waits for no other operation while the processes are locked. Contents that go
/// into files need no more of the host: the files have their memory.
pub(super) fn admit_memory(
    plan: &Plan<'_>,
    captured: &Captured,
    members: &[ProcessRef],
    route: &GpuContentsRoute,
) -> Result<(), Failure> {
    let bytes = route.bytes_in_container(captured);
    let cgroup = plan.container.memory_of(members)?;
    let room = HostRoom(plan.operation.reservation(), WaitLimit::none());
    host_memory::admit_host(room, bytes)?;
    Ok(host_memory::admit_limits(&cgroup, bytes)?)
}

/// Moves the GPU state of all processes into host memory. Calls `is_done` for each process when its
/// state is there, while the state of others is still moved.
///
/// # Errors
/// [`Failure::Job`]; every process has been brought back.
pub(super) fn gpu_checkpoint<'p>(
    plan: &'p Plan<'_>,
    captured: &Captured,
    timeline: &mut Timeline<'_>,
    job: CudaJob<'p, Locked>,
    is_done: impl Fn(&ProcessRef) + Sync,
) -> Result<CudaJob<'p, Checkpointed>, Failure> {
    let reservation = plan.operation.reservation();
    // Reserves the GPU memory that the processes may need again. If the record cannot be written,
    // others may take that memory, and these processes wait for it.
    let _ = reservation.hold(&Amounts::from(&captured.intent.room_to_go_back()));
    let bytes = |process: &ProcessRef| captured.intent.bytes_of(process);
    let held = job
        .members()
        .iter()
        .map(|process| (process.clone(), bytes(process)));
    plan.driver.expect(&held.collect::<Vec<_>>());
    let estimate =
        ProgressEstimate::gpu_checkpoint(captured.to_host_bytes, job.members(), &plan.driver);
    let job = timeline.time_moving("gpu checkpoint", estimate, || job.checkpoint_each(is_done))?;
    reservation.retain(Resource::is_of_gpu);
    Ok(job)
}
