//! The wait of a container with GPU state after its dump, and its completion.

use stasis_gpu::cuda::failure::{Cause, ProcessFailure, Step as DriverStep};

use crate::bulk_memory::dump::MemoryDump;
use crate::checkpoint::captured::Captured;
use crate::checkpoint::plan::Plan;
use crate::checkpoint::seal::{Listing, seal, tell};
use crate::checkpoint::together::{END, GO_ON};
use crate::companions::Step;
use crate::error::after_failure::AfterFailure;
use crate::error::{Error, Failure, chain};
use crate::operation::outcome::SharedOutcome;
use crate::operation::timeline::Timeline;
use crate::recovery::rollback::roll_back;
use crate::recovery::shared::end;
use crate::request::AfterDump;

/// Brings the image to disk, and waits until the images of all others are on disk. The checkpoint
/// is complete then.
///
/// # Errors
/// [`Failure`]: the checkpoint is not complete.
pub(in crate::checkpoint) fn written(
    plan: &Plan<'_>,
    captured: &mut Captured,
    memory: &mut MemoryDump<'_>,
    timeline: &mut Timeline<'_>,
) -> Result<(), Failure> {
    let manifest = &mut captured.manifest;
    let (image, listing) = (&plan.image, Listing::Begun);
    seal(plan.context, image, manifest, listing, memory, timeline)?;
    still_lives(plan)?;
    plan.meet(Step::Written, timeline)
}

/// Another process may have killed the frozen container.
fn still_lives(plan: &Plan<'_>) -> Result<(), Failure> {
    let init = plan.container.init();
    match init.is_gone() {
        true => Err(ProcessFailure::of(DriverStep::Query, init, Cause::Gone).into()),
        false => Ok(()),
    }
}

/// The checkpoint is complete: the image takes its place, and the container goes on or ends.
///
/// # Errors
/// [`Error`]: the container does not go on or end; the image is complete.
pub(in crate::checkpoint) fn complete(
    plan: &Plan<'_>,
    captured: &Captured,
    outcome: &SharedOutcome,
    timeline: &mut Timeline<'_>,
) -> Result<(), Error> {
    match plan.image.take_its_place() {
        Ok(committed) => {
            plan.has_image(None);
            tell(&committed, timeline);
        }
        // The decision stands, and the next process that opens the directory moves it into place.
        Err(error) => timeline.note(format!(
            "the image is not yet in its place: {}",
            chain(&error)
        )),
    }
    match outcome.after {
        AfterDump::LeaveRunning => resume(plan, captured, timeline),
        AfterDump::Exit => {
            let ended = timeline.time(END, || end(plan.context, &plan.container, outcome));
            let not_ended = |left| {
                let after_failure = AfterFailure::ImageComplete(vec![left]);
                plan.failed(Failure::Unanswered, after_failure)
            };
            ended.map_err(not_ended)?;
            plan.operation.clear();
            Ok(())
        }
    }
}

/// Resumes the container as it was found, which is what a rollback does.
fn resume(plan: &Plan<'_>, captured: &Captured, timeline: &mut Timeline<'_>) -> Result<(), Error> {
    let brought = timeline.time(GO_ON, || roll_back(&plan.changed(captured), Vec::new()));
    let after_failure = match brought.tell(GO_ON, timeline) {
        AfterFailure::Unharmed(_) | AfterFailure::AsBefore(_) => return Ok(()),
        AfterFailure::Ended => AfterFailure::EndedImageComplete,
        AfterFailure::Lost(lost) => AfterFailure::ImageComplete(lost),
        AfterFailure::PendingRecovery(waiting) | AfterFailure::Held(waiting) => {
            AfterFailure::ImageCompleteWaiting(waiting)
        }
        other => other,
    };
    Err(plan.failed(Failure::Unanswered, after_failure))
}
