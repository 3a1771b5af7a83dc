//! OCI resume: finishes a checkpoint that left a frozen container running.
//!
//! A caller that froze the container before the checkpoint copies its files afterwards and then
//! resumes it. Until then its CUDA processes stay checkpointed (their GPU state could not be put
//! back without letting them run); here they get it back.

use std::ffi::OsString;

use crate::admission::admit_resume;
use crate::aftermath::Aftermath;
use crate::cgroup::FreezerState;
use crate::container::Container;
use crate::engine::{Engine, Outcome};
use crate::error::{Error, Failure, Refusal, Verb};
use crate::exit_status;
use crate::fault::{Cause, Fault};
use crate::gauge::Gauge;
use crate::guardian;
use crate::low_level;
use crate::manifest::gpu_bytes;
use crate::members::revive;
use crate::operation::{Intent, Operation, WaitsFor, has_record};
use crate::operation_log;
use crate::progress::Progress;
use crate::timeline::Timeline;
use crate::watchdog::WatchedDriver;

/// Resumes a container. One that no operation left anything to finish for is not ours.
///
/// # Errors
/// [`Error`]; processes that are lost are named.
pub fn resume(engine: &Engine, id: &str, args: &[OsString]) -> Result<Outcome, Error> {
    let state_dir = &engine.settings.paths.state_dir;
    if !has_record(state_dir, &engine.root, id) {
        return Ok(Outcome::PassThrough);
    }
    let refused = |reason: Refusal| Error::refused(Verb::Resume, id, reason);
    let operation =
        Operation::begin(state_dir, &engine.root, id).map_err(|error| refused(error.into()))?;
    let recorded = operation
        .recorded()
        .map_err(|error| refused(error.into()))?;
    let Some(intent) = recorded.filter(|intent| intent.waits_for != WaitsFor::Operator) else {
        return Ok(Outcome::PassThrough);
    };
    let driver = engine
        .open_driver(id)
        .map_err(|error| refused(error.into()))?;
    let container = engine
        .container(id)
        .map_err(|error| refused(error.into()))?;
    let Some(container) = container else {
        operation.forget();
        return Ok(Outcome::PassThrough);
    };
    admit_resume(&engine.settings, &container, &intent).map_err(refused)?;
    let progress = Progress::begin(engine, &operation, Verb::Resume);
    let mut timeline = Timeline::told_by(progress);
    let paused = Paused {
        operation: &operation,
        container,
        gpu_bytes: checkpointed_bytes(&intent),
    };
    let result = carry_out(engine, &driver, &paused, args, &mut timeline);
    operation_log::write(engine, Verb::Resume, id, &timeline, result.as_ref().err());
    let resumed = result?;
    // Also when there was nothing to resume: the processes run with their GPU, and nothing is left to finish.
    if resumed.processes == Processes::Run {
        operation.forget();
    }
    Ok(Outcome::Done(resumed.code))
}

/// How a resume went that did not fail.
struct Resumed {
    /// What the low-level runtime said.
    code: u8,
    processes: Processes,
}

#[derive(PartialEq, Eq)]
enum Processes {
    Run,
    ArePaused,
    /// Some were stopped by somebody else, and are a guardian's.
    AreWaitedFor,
}

/// A container that an operation left something to finish for.
struct Paused<'o> {
    operation: &'o Operation,
    container: Container,
    /// What its processes have to get back, if that is known.
    gpu_bytes: Option<u64>,
}

/// After a checkpoint that was cut off, only the driver knows which processes were reached.
fn checkpointed_bytes(intent: &Intent) -> Option<u64> {
    match intent.waits_for {
        WaitsFor::Resume => gpu_bytes(&intent.processes),
        WaitsFor::Operation | WaitsFor::Operator => None,
    }
}

fn carry_out(
    engine: &Engine,
    driver: &WatchedDriver,
    paused: &Paused<'_>,
    args: &[OsString],
    timeline: &mut Timeline<'_>,
) -> Result<Resumed, Error> {
    let container = &paused.container;
    let failed =
        |cause: Failure, aftermath| Error::failed(Verb::Resume, container.id(), cause, aftermath);
    let low_level = &engine.low_level;
    let status = timeline.time("resume", || low_level::run_inherited(low_level, args));
    let status = status.map_err(|source| {
        let cause = Failure::Start {
            path: low_level.path.clone(),
            source,
        };
        failed(cause, Aftermath::StillPaused)
    })?;
    let code = exit_status::code(status);
    // A container whose checkpoint was cut off may run without being paused: the low-level runtime
    // refuses then, and its processes still have to be let go.
    if !status.success() && !is_thawed(container) {
        let processes = Processes::ArePaused;
        return Ok(Resumed { code, processes });
    }
    let processes = container.processes().map_err(|error| {
        let cause = Fault::of_look(container.init(), error).into();
        failed(cause, Aftermath::Lost(Vec::new()))
    })?;
    let gauge = Gauge::gpu_restore(paused.gpu_bytes, &processes);
    let lost = timeline.time_moving("gpu restore", gauge, || revive(driver, &processes));
    let processes = settle(engine, paused, lost, timeline)?;
    Ok(Resumed { code, processes })
}

/// What becomes of processes that could not be brought back.
fn settle(
    engine: &Engine,
    paused: &Paused<'_>,
    lost: Vec<Fault>,
    timeline: &mut Timeline<'_>,
) -> Result<Processes, Error> {
    let failed = |cause: Failure, aftermath| {
        Error::failed(Verb::Resume, paused.container.id(), cause, aftermath)
    };
    if lost.is_empty() {
        return Ok(Processes::Run);
    }
    let all_stopped = lost
        .iter()
        .all(|fault| matches!(fault.cause, Cause::Stopped(_)));
    match guardian::entrust(engine, paused.operation, &paused.container, lost) {
        // A process that somebody has stopped would not run if there were no GPU either: the container is
        // resumed, and the process gets its GPU back when it is continued.
        Ok(waiting) if all_stopped && waiting.has_guardian() => {
            timeline.note(waiting.to_string());
            Ok(Processes::AreWaitedFor)
        }
        Ok(waiting) => Err(failed(Failure::Unanswered, Aftermath::Waiting(waiting))),
        Err(mut lost) => {
            let first = lost.remove(0);
            Err(failed(Failure::Process(first), Aftermath::Lost(lost)))
        }
    }
}

fn is_thawed(container: &Container) -> bool {
    matches!(container.cgroup().freezer_state(), Ok(FreezerState::Thawed))
}
