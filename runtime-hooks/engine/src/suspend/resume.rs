//! OCI resume: finishes a checkpoint that left a frozen container running.
//!
//! A caller that froze the container before the checkpoint copies its files afterwards and then
//! resumes it. Until then its CUDA processes stay checkpointed (the driver cannot restore their GPU
//! state while they are frozen); the resume restores it.

use std::ffi::OsString;
use std::io;
use std::sync::Arc;

use stasis_gpu::cuda::failure::{Cause, ProcessFailure};
use stasis_gpu::cuda::gpu_use::gpu_bytes;
use stasis_gpu::cuda::process_set::bring_back;
use stasis_gpu::cuda::watchdog::WatchedDriver;
use stasis_gpu::cuda::{CudaError, Driver};
use stasis_gpu::gpu_path::detached;
use stasis_gpu::ledger::WaitLimit;
use stasis_gpu::ledger::gpu_memory::GpuMemory;
use stasis_linux::cgroup::FreezerState;
use stasis_linux::exit_status;

use crate::container::Container;
use crate::context::{Context, Outcome};
use crate::error::after_failure::AfterFailure;
use crate::error::operations_log;
use crate::error::{Error, Failure, Refusal};
use crate::low_level;
use crate::low_level::hook::pending::run_after_restore_in_phase;
use crate::operation::estimate::ProgressEstimate;
use crate::operation::progress::Progress;
use crate::operation::timeline::Timeline;
use crate::operation::undo::{Begun, Undo};
use crate::operation::verb::Verb;
use crate::operation::{Intent, Operation, is_recorded};
use crate::preflight::cuda_processes::open_driver;
use crate::recovery::{self, hand_over};
use crate::restore::admission::admit_resume;

/// Resumes a container. A container without a record is passed through to the low-level runtime.
///
/// containerd and Docker pause a container for its checkpoint, resume it once, and ignore an error
/// of that: a container whose resume is refused stays paused for good. So a resume waits for
/// another operation on the container, and is not refused for lack of room on a GPU: the container
/// runs, and its keeper gives the processes their GPU back as soon as there is room.
///
/// # Errors
/// [`Error`]; it names the processes that are lost.
pub fn resume(context: &Context, id: &str, args: &[OsString]) -> Result<Outcome, Error> {
    let refused = |reason| operations_log::refused(context, Verb::Resume, id, reason);
    let (operation, container, intent) = match find(context, id).map_err(refused)? {
        ResumeWork::Pending(operation, container, intent) => (operation, *container, intent),
        ResumeWork::Nothing(outcome) => return Ok(outcome),
    };
    let driver = open_driver(context, id).map_err(|error| refused(error.into()))?;
    admit_resume(&context.settings, &container, &intent).map_err(refused)?;
    // The keeper waits for room; the caller does not.
    let (wait_limit, reservation) = (WaitLimit::none(), operation.reservation());
    let gpus = GpuMemory::new(reservation, wait_limit, &context.settings);
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

/// The work for a resume.
enum ResumeWork {
    /// Processes of the container are pending.
    Pending(Operation, Box<Container>, Intent),
    /// Nothing is pending, and this is the outcome.
    Nothing(Outcome),
}

/// Finds pending work, once other operations on the container are done.
fn find(context: &Context, id: &str) -> Result<ResumeWork, Refusal> {
    let state_dir = &context.settings.paths.state_dir;
    if !is_recorded(state_dir, &context.root, id) {
        return Ok(ResumeWork::Nothing(Outcome::PassThrough));
    }
    // A later recovery of a killed operation would pause the container again.
    let wait = context.settings.deadlines.stalled();
    let operation = recovery::begin_within(wait, context, id)?;
    let Some(container) = context.container(id)? else {
        operation.clear();
        return Ok(ResumeWork::Nothing(Outcome::PassThrough));
    };
    let recorded = operation.recorded()?;
    if recorded.is_none() && is_thawed(&container) {
        // A killed resume is also undone by finishing it.
        return Ok(ResumeWork::Nothing(Outcome::Done(0)));
    }
    // Processes that the operator has suspended come back only at the operator's request.
    let intent = recorded.filter(Intent::concerns_resume);
    Ok(match intent.map(Intent::resumed) {
        Some(intent) => ResumeWork::Pending(operation, Box::new(container), intent),
        None => ResumeWork::Nothing(Outcome::PassThrough),
    })
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
    /// Another program has stopped some of them, or has taken their room on a GPU, and the keeper
    /// waits for these.
    AreWaitedFor,
}

/// A container with an intent.
struct Paused<'o> {
    operation: &'o Operation,
    container: Container,
    /// The intent of the resume.
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
        Error::ending(paused.operation, Verb::Resume, cause, after_failure)
    };
    let low_level = &context.low_level;
    let limit = context.settings.deadlines.stalled();
    let status = timeline.time("resume", || {
        low_level::run_inherited(low_level, args, limit)
    });
    let code = match status {
        Ok(status) => exit_status::code(status),
        // The runtime has done its part.
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
    // From now on the recovery of a killed resume finishes it. If this cannot be written, the
    // earlier record lets another resume do so.
    let _ = paused.operation.record(&paused.intent);
    let snapshot = container.snapshot().map_err(|error| {
        let unread = vec![ProcessFailure::of_query(container.init(), error)];
        let left = hand_over(paused.operation, &paused.intent, unread);
        let left = left.map_or_else(AfterFailure::Lost, AfterFailure::Held);
        failed(Failure::Unanswered, left)
    })?;
    let candidates = snapshot.candidates();
    let bytes = gpu_bytes(paused.intent.back_to_gpu());
    let estimate = ProgressEstimate::gpu_restore(bytes, candidates, driver);
    let lost = timeline.time_moving("gpu restore", estimate, || {
        // A process that lacks its GPU contents is not restored, but left to the keeper.
        let _ = detached::give_back(paused.operation.directory());
        bring_back(driver, candidates, &paused.intent.initial_state())
    });
    timeline.set_copying(driver.copying());
    let processes = settle(paused, lost, timeline)?;
    if processes == Processes::Run {
        run_after_restore_in_phase(paused.operation, container, &paused.intent, timeline);
    }
    Ok(Resumed { code, processes })
}

/// Leaves the processes that could not be brought back to the keeper, or returns an error.
fn settle(
    paused: &Paused<'_>,
    lost: Vec<ProcessFailure>,
    timeline: &mut Timeline<'_>,
) -> Result<Processes, Error> {
    let failed = |cause: Failure, after_failure| {
        Error::ending(paused.operation, Verb::Resume, cause, after_failure)
    };
    if lost.is_empty() {
        return Ok(Processes::Run);
    }
    let is_anothers =
        |fault: &ProcessFailure| matches!(fault.cause, Cause::Stopped(_) | Cause::NoRoom(_));
    // Processes that share memory with such a one wait for it.
    let waits_for_it = |fault: &ProcessFailure| {
        matches!(fault.cause, Cause::NotAsked(CudaError::SharedMemoryAway))
    };
    let another_program = lost.iter().any(is_anothers)
        && lost
            .iter()
            .all(|fault| is_anothers(fault) || waits_for_it(fault));
    match hand_over(paused.operation, &paused.intent, lost) {
        // The container runs as its caller wants it, and nothing is lost: the resume succeeds.
        Ok(waiting) if another_program && waiting.is_recovering() => {
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
