//! The checkpoint of a container with its GPU state, from top to bottom.
//!
//! After the pre-flight has thawed the container (`checkpoint/plan.rs`): lock all CUDA processes,
//! GPU checkpoint of all, freeze again, write the manifest, and let the low-level runtime dump the
//! container, which is an ordinary process tree by then. Then the processes go on, if they shall,
//! and the image is brought to disk. A failed step is rolled back.

pub mod captured;
pub mod disk_space;
pub(crate) mod dump;
mod explain_failed_dump;
pub(crate) mod gpu_state;
mod hook;
pub(crate) mod into_files;
pub(crate) mod late_exec;
pub mod plan;
pub(crate) mod resume_after_dump;
pub mod route;
pub(crate) mod seal;
mod sharing;
pub(crate) mod together;
pub mod without_gpu_state;
pub(crate) mod write_image;

use std::time::Instant;

use stasis_gpu::cuda::Driver;
use stasis_gpu::cuda::job::{Checkpointed, CudaJob};
use stasis_gpu::ledger::amounts::Resource;
use stasis_linux::ProcessRef;
use stasis_linux::cgroup::FreezerState;

use crate::bulk_memory::dump::MemoryDump;
use crate::checkpoint::captured::Captured;
use crate::checkpoint::gpu_state::{admit_memory, gpu_checkpoint, lock, note_ended};
use crate::checkpoint::hook::tell_program;
use crate::checkpoint::into_files::{find, lead_into_files, make_files, store_beside_others};
use crate::checkpoint::plan::{Plan, Verdict};
use crate::checkpoint::resume_after_dump::{explain_failed_resume, resume_after_dump, take_back};
use crate::checkpoint::seal::{Listing, seal, unsealed};
use crate::checkpoint::sharing::{give_up_shared, survey_together};
use crate::checkpoint::write_image::write_image;
use crate::companions::{Companions, Step};
use crate::container::inherited_devices;
use crate::context::{Context, Outcome};
use crate::error::operations_log;
use crate::error::{Error, Failure};
use crate::low_level::hook::pending::run_after_restore_in_phase;
use crate::operation::progress::Progress;
use crate::operation::timeline::Timeline;
use crate::operation::verb::Verb;
use crate::preflight::blocker::Finding;
use crate::recovery::rollback::roll_back;
use crate::request::{AfterDump, CheckpointRequest, LowLevelArgs, Resumes};

/// The phase of what brings everything back.
const ROLL_BACK: &str = "roll back";

/// Checkpoints a container; `low_level_args` makes the low-level runtime's command line. For a
/// container without CUDA processes the low-level runtime writes a plain image.
///
/// A process that starts CUDA after the pre-flight makes the dump fail. Then the checkpoint is
/// tried once more, with that process, unless others share its outcome: `companions`, or
/// [`Alone`](crate::companions::Alone).
///
/// # Errors
/// [`Error`]; it reports the container's state and the processes that are lost.
pub fn checkpoint(
    context: &Context,
    options: &CheckpointRequest,
    companions: &dyn Companions,
    low_level_args: LowLevelArgs<'_>,
) -> Result<Outcome, Error> {
    let attempt = || attempt(context, options, companions, low_level_args);
    let first = attempt();
    if companions.outcome().is_some() {
        return together::refuse_passing_on(context, &options.id, first);
    }
    match first {
        Err(error) if error.is_worth_a_retry() && !context.cancel.requested() => attempt(),
        over => over,
    }
}

fn attempt(
    context: &Context,
    options: &CheckpointRequest,
    companions: &dyn Companions,
    low_level_args: LowLevelArgs<'_>,
) -> Result<Outcome, Error> {
    let began = Instant::now();
    let (plan, mut captured) = match Plan::make(context, options, companions) {
        Ok(Verdict::Plain) => return Ok(Outcome::PassThrough),
        Ok(Verdict::PlainDump(idle)) => {
            return match companions.outcome() {
                None => idle.dump(low_level_args),
                Some(outcome) => together::plain::dump(&idle, outcome, low_level_args),
            };
        }
        Ok(Verdict::Cuda(plan, captured)) => (*plan, captured),
        Err(error) => {
            let timeline = Timeline::default().of_image(&options.image_path);
            let id = &options.id;
            operations_log::write(context, Verb::Checkpoint, id, &timeline, Some(&error));
            return Err(error);
        }
    };
    let progress = Progress::begin(context, &plan.operation, Verb::Checkpoint);
    let mut timeline = Timeline::with_progress(progress).of_image(&options.image_path);
    timeline.add("check", began.elapsed(), None);
    for finding in &plan.allowed {
        timeline.note(allowed(finding));
    }
    let result = carry_out(&plan, &mut captured, low_level_args, &mut timeline);
    timeline.set_copying(plan.driver.copying());
    timeline.stop.locked_seconds = Some(plan.driver.locked_time().as_secs_f64());
    operations_log::write(
        context,
        Verb::Checkpoint,
        &options.id,
        &timeline,
        result.as_ref().err(),
    );
    result.map(|()| Outcome::Done(0))
}

fn carry_out(
    plan: &Plan<'_>,
    captured: &mut Captured,
    low_level_args: LowLevelArgs<'_>,
    timeline: &mut Timeline<'_>,
) -> Result<(), Error> {
    let failed = |cause, after_failure| plan.failed(cause, after_failure);
    let saved = save(plan, captured, low_level_args, timeline);
    let (job, mut memory) = saved.map_err(|cause| take_back(plan, captured, cause, timeline))?;
    if let Some(outcome) = plan.companions.outcome() {
        return together::complete(plan, captured, outcome, timeline);
    }
    let resumed = resume_after_dump(plan, captured, job, timeline);
    if resumed.is_ok() && plan.resumes() == Resumes::AtOnce {
        run_after_restore_in_phase(&plan.operation, &plan.container, &captured.intent, timeline);
    }
    if resumed.is_ok() && !plan.is_pending_on_resume() {
        plan.operation.reservation().release();
    }
    let manifest = &mut captured.manifest;
    let (image, listing) = (&plan.image, Listing::Begun);
    let sealed = seal(
        plan.context,
        image,
        manifest,
        listing,
        &mut memory,
        timeline,
    );
    if sealed.is_ok() {
        plan.has_image(None);
    }
    match (resumed, sealed) {
        (Ok(()), Ok(())) if plan.is_pending_on_resume() => Ok(()),
        (Ok(()), Ok(())) => {
            match plan.options.after {
                AfterDump::Exit => plan.operation.clear(),
                // A record that cannot be written says the same of what stays suspended.
                AfterDump::LeaveRunning => drop(plan.operation.settle(captured.intent.clone())),
            }
            Ok(())
        }
        (Ok(()), Err(cause)) => {
            let rolled_back =
                timeline.time(ROLL_BACK, || roll_back(&plan.changed(captured), Vec::new()));
            let rolled_back = rolled_back.tell(ROLL_BACK, timeline);
            let ended = unsealed(&cause, &plan.image, &mut memory, &plan.container);
            Err(failed(cause, ended.unwrap_or(rolled_back)))
        }
        (Err(cause), sealed) => {
            let (cause, after_failure) =
                explain_failed_resume(plan, captured, cause, sealed, timeline);
            Err(failed(cause, after_failure))
        }
    }
}

/// The steps up to the image as CRIU leaves it.
fn save<'p>(
    plan: &'p Plan<'_>,
    captured: &mut Captured,
    low_level_args: LowLevelArgs<'_>,
    timeline: &mut Timeline<'_>,
) -> Result<(CudaJob<'p, Checkpointed>, MemoryDump<'p>), Failure> {
    plan.meet(Step::Checked, timeline)?;
    check_may_continue(plan)?;
    plan.operation.record(&captured.intent)?;
    tell_program(plan, captured, timeline)?;
    check_may_continue(plan)?;
    let (options, image) = (plan.options, &plan.image);
    let mut memory =
        MemoryDump::begin(plan.context, options, image, &plan.plugins, &plan.operation)?;
    match save_with(&mut memory, plan, captured, low_level_args, timeline) {
        Ok(job) => Ok((job, memory)),
        Err(cause) => {
            memory.undo(&plan.container);
            Err(cause)
        }
    }
}

/// Whatever step fails, what the others have done with GPU contents is in `memory`.
fn save_with<'p>(
    memory: &mut MemoryDump<'p>,
    plan: &'p Plan<'_>,
    captured: &mut Captured,
    low_level_args: LowLevelArgs<'_>,
    timeline: &mut Timeline<'_>,
) -> Result<CudaJob<'p, Checkpointed>, Failure> {
    let began = Instant::now();
    let route = make_files(plan, captured, memory, timeline);
    timeline.add("make room", began.elapsed(), None);
    let route = route?;
    plan.meet(Step::Ready, timeline)?;
    let job = timeline.time("lock", || lock(plan, captured))?;
    note_ended(plan, job.members(), captured, timeline);
    let shares = survey_together(plan, captured, job.members(), timeline)?;
    let processes = plan.container.snapshot();
    for replaced in inherited_devices::give_up(&plan.driver, job.members(), processes)? {
        timeline.note(replaced.to_string());
    }
    give_up_shared(plan, captured, job.members(), &shares)?;
    // From here on workers of ours are in the container: each has the memory of a CUDA process.
    let route = lead_into_files(plan, captured, route, memory, timeline);
    admit_memory(plan, captured, job.members(), &route)?;
    memory.begin_to_store(route.bytes_in_files(captured))?;
    let storing = memory.storing();
    let is_done = |process: &ProcessRef| store_beside_others(plan, captured, storing, process);
    let job = gpu_checkpoint(plan, captured, timeline, job, is_done)?;
    let in_files = find(plan, captured, job.members(), &route)?;
    check_may_continue(plan)?;
    memory.detach(in_files, plan.resumes(), timeline)?;
    if plan.found == FreezerState::Frozen || plan.stays_frozen() {
        timeline.time("freeze", || plan.container.cgroup().freeze())?;
    }
    plan.meet(Step::Still, timeline)?;
    let members = job.members();
    write_image(plan, captured, members, memory, low_level_args, timeline)?;
    if plan.companions.outcome().is_some() {
        together::written(plan, captured, memory, timeline)?;
    }
    plan.operation.reservation().retain(Resource::is_of_gpu);
    Ok(job)
}

/// A note of a blocker that the settings allow.
fn allowed(finding: &Finding) -> String {
    format!("allowed {}: process {finding}", finding.kind)
}

fn check_may_continue(plan: &Plan<'_>) -> Result<(), Failure> {
    if plan.context.cancel.requested() {
        return Err(Failure::Cancelled);
    }
    Ok(plan.operation.stay_kept()?)
}
