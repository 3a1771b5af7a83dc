//! Resumes the processes once CRIU has written the image, or the checkpoint has failed.

use stasis_gpu::cuda::GpuMap;
use stasis_gpu::cuda::failure::ProcessFailure;
use stasis_gpu::cuda::gpu_use::gpu_bytes;
use stasis_gpu::cuda::job::{Checkpointed, CudaJob};
use stasis_gpu::gpu_path::detached::are_detached;
use stasis_linux::cgroup::FreezerState;

use crate::checkpoint::ROLL_BACK;
use crate::checkpoint::captured::Captured;
use crate::checkpoint::plan::Plan;
use crate::error::after_failure::AfterFailure;
use crate::error::{Error, Failure, chain};
use crate::low_level::hook::pending::run_after_restore_in_phase;
use crate::operation::PendingOn;
use crate::operation::estimate::ProgressEstimate;
use crate::operation::timeline::Timeline;
use crate::recovery::hand_over;
use crate::recovery::rollback::roll_back;
use crate::request::AfterDump;

/// Restores and unlocks the processes, if the container is to resume now.
///
/// # Errors
/// [`Failure`]: not all of them resume.
pub(crate) fn resume_after_dump(
    plan: &Plan<'_>,
    captured: &Captured,
    job: CudaJob<'_, Checkpointed>,
    timeline: &mut Timeline<'_>,
) -> Result<(), Failure> {
    if plan.is_pending_on_resume() {
        // The caller still copies the files of the container that it has paused: the CUDA
        // processes stay checkpointed until it calls `resume`.
        let intent = captured.intent.clone().left_to(PendingOn::Resume);
        return Ok(plan.operation.settle(intent)?);
    }
    if plan.options.after == AfterDump::Exit {
        return Ok(());
    }
    let bytes = gpu_bytes(captured.intent.back_to_gpu());
    let estimate = ProgressEstimate::gpu_restore(bytes, job.members(), &plan.driver);
    let job = timeline.time_moving("gpu restore", estimate, || job.restore(&GpuMap::identity()))?;
    timeline.time("unlock", || job.unlock())?;
    Ok(())
}

/// Returns the state of a container whose processes did not all resume, sealed image or not.
pub(crate) fn explain_failed_resume(
    plan: &Plan<'_>,
    captured: &Captured,
    mut cause: Failure,
    sealed: Result<(), Failure>,
    timeline: &mut Timeline<'_>,
) -> (Failure, AfterFailure) {
    let is_sealed = sealed.is_ok();
    if let Err(error) = sealed {
        // The files of the image stay: they may be all that is left of lost processes.
        timeline.note(format!("the image is not whole: {}", chain(&error)));
    }
    let after_failure = match &mut cause {
        Failure::Job(error) if is_sealed => {
            let lost = std::mem::take(&mut error.lost);
            image_complete(plan, captured, lost, timeline)
        }
        other => {
            let rolled_back = roll_back(&plan.changed(captured), other.take_lost());
            rolled_back.tell(ROLL_BACK, timeline)
        }
    };
    (cause, after_failure)
}

/// Returns the state of a container that did not resume after its image was written.
fn image_complete(
    plan: &Plan<'_>,
    captured: &Captured,
    lost: Vec<ProcessFailure>,
    timeline: &mut Timeline<'_>,
) -> AfterFailure {
    if plan.container.init().is_gone() {
        plan.operation.clear();
        return AfterFailure::EndedImageComplete;
    }
    if lost.is_empty() {
        // The rollback brought back the processes that the step did not.
        run_after_restore_in_phase(&plan.operation, &plan.container, &captured.intent, timeline);
        let _ = plan.operation.settle(captured.intent.clone());
    }
    hand_over(&plan.operation, &captured.intent, lost).map_or_else(
        AfterFailure::ImageComplete,
        AfterFailure::ImageCompleteWaiting,
    )
}

/// Brings the container back to how it was found, without the image.
pub(crate) fn take_back(
    plan: &Plan<'_>,
    captured: &mut Captured,
    mut cause: Failure,
    timeline: &mut Timeline<'_>,
) -> Error {
    captured.intent.freezer = freezer_to_leave(plan, &cause);
    let changed = plan.changed(captured);
    let lost = cause.take_lost();
    let rolled_back = timeline.time(ROLL_BACK, || roll_back(&changed, lost));
    let after_failure = rolled_back.tell(ROLL_BACK, timeline);
    let last_copy = match are_detached(plan.operation.directory()) {
        true => {
            plan.image.disown();
            None
        }
        false => plan.image.give_up(plan.container.init()),
    };
    plan.failed(
        cause,
        last_copy.map_or(after_failure, AfterFailure::EndedNotOnDisk),
    )
}

/// Another process may have paused the container meanwhile, and relies on it. But CRIU freezes it,
/// too, and so does stasis if the container waits for others.
fn freezer_to_leave(plan: &Plan<'_>, cause: &Failure) -> FreezerState {
    let is_of_dump = matches!(
        cause,
        Failure::LowLevel(_) | Failure::CudaStartedDuringDump { .. } | Failure::Pstree(_)
    );
    match plan.container.cgroup().freezer_state() {
        Ok(FreezerState::Frozen) if !is_of_dump && plan.companions.outcome().is_none() => {
            FreezerState::Frozen
        }
        _ => plan.found,
    }
}
