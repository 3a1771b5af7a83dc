//! The checkpoint of a container with its GPU state, from top to bottom.
//!
//! With the container looked at and thawed (`preflight.rs`): lock all, GPU checkpoint of all, freeze again, write the manifest, and let the low-level
//! runtime dump what is an ordinary process tree by then. Whatever fails is undone.

use std::ffi::OsString;

use crate::aftermath::Aftermath;
use crate::cgroup::FreezerState;
use crate::cuda::GpuMap;
use crate::dump::dump;
use crate::engine::{Engine, Outcome};
use crate::error::{Error, Failure, Verb};
use crate::fault::Fault;
use crate::gauge::Gauge;
use crate::guardian;
use crate::host_memory;
use crate::huge_pages::HugePages;
use crate::invocation::{AfterDump, CheckpointOptions};
use crate::job::{Checkpointed, CudaJob, Locked};
use crate::leftovers;
use crate::manifest::Manifest;
use crate::memory_dump::MemoryDump;
use crate::newcomer;
use crate::operation::WaitsFor;
use crate::operation_log;
use crate::preflight::{Plan, Verdict, look_again};
use crate::process::ProcessRef;
use crate::progress::Progress;
use crate::timeline::Timeline;
use crate::undo::undo;

/// Checkpoints a container; `args` is the low-level runtime's own command line for it. A container
/// without CUDA processes is not ours: it gets the plain image that the low-level runtime makes.
///
/// A process may start CUDA after it was looked at, and fail the dump. Then everything is done once
/// more, with that process.
///
/// # Errors
/// [`Error`]: the container is as it was, or the error says what is lost.
pub fn checkpoint(
    engine: &Engine,
    options: &CheckpointOptions,
    args: &[OsString],
) -> Result<Outcome, Error> {
    match attempt(engine, options, args) {
        Err(error) if error.is_worth_a_retry() && !engine.cancel.requested() => {
            attempt(engine, options, args)
        }
        over => over,
    }
}

fn attempt(
    engine: &Engine,
    options: &CheckpointOptions,
    args: &[OsString],
) -> Result<Outcome, Error> {
    let (plan, mut manifest) = match Plan::make(engine, options) {
        Ok(Verdict::Plain) => return Ok(Outcome::PassThrough),
        Ok(Verdict::Idle(idle)) => return idle.dump(args),
        Ok(Verdict::Cuda(plan, manifest)) => (*plan, manifest),
        Err(reason) => return Err(Error::refused(Verb::Checkpoint, &options.id, reason)),
    };
    let progress = Progress::begin(engine, &plan.operation, Verb::Checkpoint);
    let mut timeline = Timeline::told_by(progress);
    for finding in &plan.allowed {
        timeline.note(format!("allowed {}: process {finding}", finding.kind));
    }
    let result = carry_out(&plan, &mut manifest, args, &mut timeline);
    operation_log::write(
        engine,
        Verb::Checkpoint,
        &options.id,
        &timeline,
        result.as_ref().err(),
    );
    result.map(|()| Outcome::Done(0))
}

fn carry_out(
    plan: &Plan<'_>,
    manifest: &mut Manifest,
    args: &[OsString],
    timeline: &mut Timeline<'_>,
) -> Result<(), Error> {
    let failed = |cause: Failure, aftermath| {
        Error::failed(Verb::Checkpoint, &plan.options.id, cause, aftermath)
    };
    let saved = save(plan, manifest, args, timeline);
    let (job, memory) = saved.map_err(|cause| {
        if cause.is_without_memory() {
            // Nothing that waits for its memory answers the driver.
            let _ = Manifest::remove(&plan.options.image_path);
            return failed(cause, Aftermath::WithoutMemory);
        }
        let mut cause =
            newcomer::explain(&plan.driver, &plan.container, &manifest.processes, cause);
        let aftermath = timeline.time("roll back", || undo(plan, cause.take_lost()));
        failed(cause, aftermath)
    })?;
    if let Some(why) = memory {
        let cause = Failure::NotReturned(why);
        return Err(failed(cause, Aftermath::ImageCompleteWithoutMemory));
    }
    match (plan.options.after, plan.found) {
        (AfterDump::Exit, _) => {}
        // The caller still copies the container's files and believes it paused: its CUDA
        // processes stay as they are until it calls `resume`.
        (AfterDump::LeaveRunning, FreezerState::Frozen) => {
            let intent = plan.intent(manifest, WaitsFor::Resume);
            let recorded = plan.operation.record(&intent);
            return recorded.map_err(|error| failed(error.into(), undo(plan, Vec::new())));
        }
        (AfterDump::LeaveRunning, FreezerState::Thawed) => {
            let gauge = Gauge::gpu_restore(manifest.gpu_bytes(), job.members());
            let restored =
                timeline.time_moving("gpu restore", gauge, || job.restore(&GpuMap::identity()));
            let unlocked = restored.and_then(|job| timeline.time("unlock", || job.unlock()));
            unlocked.map_err(|mut error| {
                let aftermath = image_complete(plan, std::mem::take(&mut error.lost));
                failed(error.into(), aftermath)
            })?;
        }
    }
    plan.operation.forget();
    Ok(())
}

/// The container did not go on at once after its image was written.
fn image_complete(plan: &Plan<'_>, lost: Vec<Fault>) -> Aftermath {
    if lost.is_empty() {
        // The roll-back brought back what the step did not.
        plan.operation.forget();
    }
    let left = guardian::entrust(plan.engine, &plan.operation, &plan.container, lost);
    left.map_or_else(Aftermath::ImageComplete, Aftermath::ImageCompleteWaiting)
}

/// Everything up to the complete image; and why processes have not got their memory again, if so.
fn save<'p>(
    plan: &'p Plan<'_>,
    manifest: &mut Manifest,
    args: &[OsString],
    timeline: &mut Timeline<'_>,
) -> Result<(CudaJob<'p, Checkpointed>, Option<String>), Failure> {
    let cgroup = plan.container.cgroup();
    plan.operation
        .record(&plan.intent(manifest, WaitsFor::Operation))?;
    let job = timeline.time("lock", || lock(plan))?;
    note_ended(plan, job.members(), manifest, timeline);
    plan.follow(job.members(), manifest)?;
    plan.operation
        .record(&plan.intent(manifest, WaitsFor::Operation))?;
    go_on(plan)?;
    make_room(plan, manifest, timeline)?;
    let heirs = leftovers::heirs(&plan.container, job.members())?;
    let job = gpu_checkpoint(plan, manifest, timeline, job)?;
    go_on(plan)?;
    for given_up in leftovers::give_up(&plan.driver, &heirs)? {
        timeline.note(given_up.to_string());
    }
    if plan.found == FreezerState::Frozen {
        timeline.time("freeze", || cgroup.freeze())?;
    }
    let not_returned = write_image(plan, manifest, args, timeline)?;
    Ok((job, not_returned))
}

/// What is an ordinary process tree by now becomes an image, with its manifest. Gives what [`MemoryDump::not_returned`] does.
fn write_image(
    plan: &Plan<'_>,
    manifest: &mut Manifest,
    args: &[OsString],
    timeline: &mut Timeline<'_>,
) -> Result<Option<String>, Failure> {
    let (image, began) = (&plan.options.image_path, plan.engine.began);
    let memory = MemoryDump::order(
        plan.engine,
        plan.options,
        &plan.plugins,
        &plan.container,
        &plan.operation,
        timeline,
    )?;
    manifest.memory = memory.record();
    manifest.phases = timeline.phases().to_vec();
    manifest.write(image)?;
    let gauge = Gauge::dump(&plan.container, image, began, memory.progress());
    let not_returned = timeline.time_moving("dump", gauge, || dump(plan, &memory, args))?;
    let stored = memory.succeeded(timeline);
    let is_as_said = stored == manifest.memory;
    manifest.memory = stored;
    manifest.phases = timeline.phases().to_vec();
    match manifest.write(image) {
        // What it has more now is good to know, and no reason to call a complete image a failure.
        Err(_) if is_as_said => {}
        written => written?,
    }
    if manifest.memory.is_none() {
        memory.remove_unused();
    }
    Ok(not_returned)
}

fn lock<'p>(plan: &'p Plan<'_>) -> Result<CudaJob<'p, Locked>, Failure> {
    let limits = plan.engine.lock_limits();
    Ok(CudaJob::lock(&plan.driver, limits, || {
        look_again(&plan.driver, &plan.container)
    })?)
}

/// A process that ended is not missed by a checkpoint, but maybe by whoever reads the log: the driver may have been what ended it.
fn note_ended(
    plan: &Plan<'_>,
    members: &[ProcessRef],
    manifest: &Manifest,
    timeline: &mut Timeline<'_>,
) {
    for known in &manifest.processes {
        let is_there = |member: &ProcessRef| plan.container.pid_inside(member) == Some(known.pid);
        if !members.iter().any(is_there) {
            let (pid, name) = (known.pid, &known.name);
            timeline.note(format!(
                "process {pid} of the container ({name}) ended before all were locked"
            ));
        }
    }
}

/// The driver needs memory of the container for what is on the GPU now.
fn make_room(
    plan: &Plan<'_>,
    manifest: &Manifest,
    timeline: &mut Timeline<'_>,
) -> Result<(), Failure> {
    let bytes = manifest.gpu_bytes().unwrap_or(0);
    if plan.engine.settings.memory.raise_limits {
        let directory = plan.operation.directory();
        for raised in host_memory::make_room(plan.container.memory(), bytes, directory)? {
            timeline.note(raised.to_string());
        }
    }
    Ok(())
}

fn gpu_checkpoint<'p>(
    plan: &'p Plan<'_>,
    manifest: &Manifest,
    timeline: &mut Timeline<'_>,
    job: CudaJob<'p, Locked>,
) -> Result<CudaJob<'p, Checkpointed>, Failure> {
    let settings = &plan.engine.settings;
    // Only speed depends on them: a kernel without the switch is no reason to fail.
    let _huge_pages = settings
        .gpu_checkpoint
        .huge_pages
        .then(|| HugePages::switch_on(&settings.paths.state_dir));
    let gauge = Gauge::gpu_checkpoint(manifest.gpu_bytes(), job.members());
    Ok(timeline.time_moving("gpu checkpoint", gauge, || job.checkpoint())?)
}

fn go_on(plan: &Plan<'_>) -> Result<(), Failure> {
    if plan.engine.cancel.requested() {
        Err(Failure::Cancelled)
    } else {
        Ok(())
    }
}
