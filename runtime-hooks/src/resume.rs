//! OCI resume: finishes a checkpoint that left a frozen container running.
//!
//! A caller that froze the container before the checkpoint copies its files afterwards and then
//! resumes it. Until then its CUDA processes stay checkpointed (the driver cannot restore their GPU
//! state while they are frozen); the resume restores it.

use std::ffi::OsString;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use stasis_linux::cgroup::FreezerState;
use stasis_linux::exit_status;

use crate::container::Container;
use crate::context::{Context, Outcome};
use crate::cuda::failure::{Cause, ProcessFailure};
use crate::cuda::gpu_use::gpu_bytes;
use crate::cuda::process_set::bring_back;
use crate::cuda::watchdog::WatchedDriver;
use crate::error::after_failure::AfterFailure;
use crate::error::operations_log;
use crate::error::{Error, Failure, Refusal};
use crate::host::huge_pages::HugePages;
use crate::low_level;
use crate::operation::estimate::ProgressEstimate;
use crate::operation::progress::Progress;
use crate::operation::timeline::Timeline;
use crate::operation::undo::{Begun, Undo, has_undo};
use crate::operation::verb::Verb;
use crate::operation::{Intent, Operation, has_intent};
use crate::preflight::cuda_processes::open_driver;
use crate::recovery::{self, hand_over};
use crate::restore::admission::admit_resume;

/// How long a resume waits for another operation's lock. containerd and docker ignore the error of
/// the resume that ends their checkpoint, so a refused resume leaves the container paused for good.
const LOCK_WAIT: Duration = Duration::from_secs(10);

/// Resumes a container. A container without an intent is passed through to the low-level runtime.
///
/// # Errors
/// [`Error`]; it names the processes that are lost.
pub fn resume(context: &Context, id: &str, args: &[OsString]) -> Result<Outcome, Error> {
    let state_dir = &context.settings.paths.state_dir;
    if !has_intent(state_dir, &context.root, id) {
        if has_undo(state_dir, &context.root, id) {
            // Of a killed operation: whoever undoes it later would pause the container again, as it
            // was found. One that is under way has the lock, and this resume is not about it.
            drop(recovery::begin(context, id));
        }
        return Ok(Outcome::PassThrough);
    }
    let refused = |reason: Refusal| operations_log::refused(context, Verb::Resume, id, reason);
    let operation = Operation::begin_within(LOCK_WAIT, state_dir, &context.root, id)
        .map_err(|error| refused(error.into()))?;
    let recorded = operation
        .recorded()
        .map_err(|error| refused(error.into()))?;
    // What the operator has suspended is the operator's to take up.
    let Some(intent) = recorded
        .filter(Intent::concerns_resume)
        .map(Intent::resumed)
    else {
        return Ok(Outcome::PassThrough);
    };
    let driver = open_driver(context, id).map_err(|error| refused(error.into()))?;
    let container = context
        .container(id)
        .map_err(|error| refused(error.into()))?;
    let Some(container) = container else {
        operation.clear();
        return Ok(Outcome::PassThrough);
    };
    let gpus = operation.gpu_memory(context);
    admit_resume(&context.settings, &container, &intent, &gpus).map_err(refused)?;
    let driver = driver.with_room(Arc::new(gpus));
    operation
        .keep(Undo::new(context, id, Begun::Resume))
        .map_err(|error| refused(error.into()))?;
    let progress = Progress::begin(context, &operation, Verb::Resume);
    let mut timeline = Timeline::with_progress(progress);
    let paused = Paused {
        operation: &operation,
        container,
        intent,
    };
    let result = carry_out(context, &driver, &paused, args, &mut timeline);
    operations_log::write(context, Verb::Resume, id, &timeline, result.as_ref().err());
    let resumed = result?;
    // Also when the container was not paused: its processes are as they were found, so the
    // operation is finished.
    if resumed.processes == Processes::Run {
        let _ = operation.settle(paused.intent);
    }
    Ok(Outcome::Done(resumed.code))
}

/// The result of a resume that did not fail.
struct Resumed {
    /// The low-level runtime's exit code.
    code: u8,
    processes: Processes,
}

#[derive(PartialEq, Eq)]
enum Processes {
    Run,
    ArePaused,
    /// Another program has stopped some of them, and the keeper waits for these.
    AreWaitedFor,
}

/// A container with an intent.
struct Paused<'o> {
    operation: &'o Operation,
    container: Container,
    /// What it brings back.
    intent: Intent,
}

fn carry_out(
    context: &Context,
    driver: &WatchedDriver,
    paused: &Paused<'_>,
    args: &[OsString],
    timeline: &mut Timeline<'_>,
) -> Result<Resumed, Error> {
    let container = &paused.container;
    let failed = |cause: Failure, after_failure| {
        Error::failed(Verb::Resume, container.id(), cause, after_failure)
    };
    let low_level = &context.low_level;
    let limit = context.settings.deadlines.stalled();
    let status = timeline.time("resume", || {
        low_level::run_inherited(low_level, args, limit)
    });
    let code = match status {
        Ok(status) => exit_status::code(status),
        // It has done its part.
        Err(error) if error.kind() == io::ErrorKind::TimedOut && is_thawed(container) => {
            timeline.note(format!("{}: {error}", low_level::name(low_level)));
            0
        }
        Err(error) => {
            let cause = Failure::start(low_level)(error);
            return Err(failed(cause, AfterFailure::StillPaused));
        }
    };
    // A container whose checkpoint was interrupted may be thawed: the low-level runtime then
    // refuses the resume, but the processes still have to be unlocked.
    if code != 0 && !is_thawed(container) {
        let processes = Processes::ArePaused;
        return Ok(Resumed { code, processes });
    }
    // From now on whoever comes after a killed resume finishes it. If this cannot be written, the
    // earlier record lets another resume do so.
    let _ = paused.operation.record(&paused.intent);
    let snapshot = container.snapshot().map_err(|error| {
        let cause = ProcessFailure::of_query(container.init(), error).into();
        failed(cause, AfterFailure::Lost(Vec::new()))
    })?;
    let candidates = snapshot.candidates();
    let bytes = gpu_bytes(paused.intent.back_to_gpu());
    let estimate = ProgressEstimate::gpu_restore(bytes, candidates);
    let lost = timeline.time_moving("gpu restore", estimate, || {
        let _huge_pages = HugePages::if_wanted(&context.settings);
        bring_back(driver, candidates, &paused.intent.as_found())
    });
    let processes = settle(paused, lost, timeline)?;
    Ok(Resumed { code, processes })
}

/// Leaves the processes that could not be brought back to the keeper, or returns an error.
fn settle(
    paused: &Paused<'_>,
    lost: Vec<ProcessFailure>,
    timeline: &mut Timeline<'_>,
) -> Result<Processes, Error> {
    let failed = |cause: Failure, after_failure| {
        Error::failed(Verb::Resume, paused.container.id(), cause, after_failure)
    };
    if lost.is_empty() {
        return Ok(Processes::Run);
    }
    let all_stopped = lost
        .iter()
        .all(|fault| matches!(fault.cause, Cause::Stopped(_)));
    match hand_over(paused.operation, lost) {
        // A process that another program has stopped would not run without a GPU either: the
        // resume succeeds, and the process gets its GPU back when it is continued.
        Ok(waiting) if all_stopped && waiting.is_recovering() => {
            timeline.note(waiting.to_string());
            Ok(Processes::AreWaitedFor)
        }
        Ok(waiting) => {
            let cause = match waiting.lacks_room() {
                true => Failure::NoRoom,
                false => Failure::Unanswered,
            };
            Err(failed(cause, AfterFailure::PendingRecovery(waiting)))
        }
        Err(mut lost) => {
            let first = lost.remove(0);
            Err(failed(Failure::Process(first), AfterFailure::Lost(lost)))
        }
    }
}

fn is_thawed(container: &Container) -> bool {
    matches!(container.cgroup().freezer_state(), Ok(FreezerState::Thawed))
}
