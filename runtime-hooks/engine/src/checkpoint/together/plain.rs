//! The checkpoint of a container without GPU state, together with others.

use stasis_gpu::cuda::Driver;
use stasis_gpu::cuda::failure::{Cause, ProcessFailure, Step as DriverStep};

use crate::bulk_memory::dump::MemoryDump;
use crate::bulk_memory::plugin::{GpuState, Plugins};
use crate::checkpoint::dump::{Dump, log_of};
use crate::checkpoint::explain_failed_dump::explain;
use crate::checkpoint::late_exec;
use crate::checkpoint::seal::{seal, tell};
use crate::checkpoint::together::{END, GO_ON};
use crate::checkpoint::without_gpu_state::PlainDump;
use crate::companions::Step;
use crate::container::ContainerError;
use crate::context::Outcome;
use crate::error::after_failure::AfterFailure;
use crate::error::operations_log;
use crate::error::{Error, Failure};
use crate::image::directory::NewImage;
use crate::operation::outcome::SharedOutcome;
use crate::operation::progress::Progress;
use crate::operation::timeline::Timeline;
use crate::operation::verb::Verb;
use crate::preflight::cuda_processes::open_driver;
use crate::recovery::reach;
use crate::recovery::shared::end;
use crate::request::{AfterDump, LowLevelArgs};

/// Makes the image, and lets the container go on or end with the others.
pub(crate) fn dump(
    idle: &PlainDump<'_>,
    outcome: &SharedOutcome,
    low_level_args: LowLevelArgs<'_>,
) -> Result<Outcome, Error> {
    let (context, options) = (idle.context, idle.options);
    let refused = |reason| operations_log::refused(context, Verb::Checkpoint, &options.id, reason);
    let plugins = Plugins::for_checkpoint(context, options, GpuState::None).map_err(refused)?;
    let image = NewImage::begin(&context.settings, &options.image_path, Some(outcome))
        .map_err(|error| refused(error.into()))?;
    idle.has_image(Some(image.directory()));
    let progress = Progress::begin(context, &idle.operation, Verb::Checkpoint);
    let mut timeline = Timeline::with_progress(progress).of_image(&options.image_path);
    let mut task = Task {
        idle,
        outcome,
        image: &image,
        timeline: &mut timeline,
    };
    let result = match task.save(&plugins, low_level_args) {
        Ok(()) => task.complete(),
        Err(cause) => Err(task.take_back(cause)),
    };
    let error = result.as_ref().err();
    operations_log::write(context, Verb::Checkpoint, &options.id, &timeline, error);
    result.map(|()| Outcome::Done(0))
}

struct Task<'t, 'i, 'p> {
    idle: &'i PlainDump<'i>,
    outcome: &'i SharedOutcome,
    image: &'i NewImage,
    timeline: &'t mut Timeline<'p>,
}

impl Task<'_, '_, '_> {
    /// All up to the moment in which the checkpoint of all is complete.
    fn save(&mut self, plugins: &Plugins, low_level_args: LowLevelArgs<'_>) -> Result<(), Failure> {
        let PlainDump {
            context, container, ..
        } = self.idle;
        self.meet(Step::Checked)?;
        self.meet(Step::Ready)?;
        self.meet(Step::Surveyed)?;
        self.meet(Step::Movable)?;
        container.cgroup().freeze()?;
        self.meet(Step::Still)?;
        let (options, operation) = (self.idle.options, &self.idle.operation);
        let mut memory = MemoryDump::begin(context, options, self.image, plugins, operation)?;
        self.write(&mut memory, low_level_args)
    }

    fn write(
        &mut self,
        memory: &mut MemoryDump<'_>,
        low_level_args: LowLevelArgs<'_>,
    ) -> Result<(), Failure> {
        let PlainDump {
            context,
            options,
            container,
            ..
        } = self.idle;
        let snapshot = container.snapshot().map_err(ContainerError::Processes)?;
        for note in late_exec::refuse_or_note(context, options, &snapshot)? {
            self.timeline.note(note);
        }
        let (mut manifest, listing) = self.idle.manifest_in(self.image)?;
        let mut dump = Dump {
            context,
            operation: &self.idle.operation,
            options,
            container,
            image: self.image,
            memory,
            log: log_of(context, container, options),
            recorded: &[],
            exec: &[],
        };
        if let Err(not_dumped) = dump.run(low_level_args, self.timeline) {
            // Its processes may have started CUDA while it waited for the others.
            let driver = open_driver(context, container.id()).ok();
            let driver = driver.as_ref().map(|driver| driver as &dyn Driver);
            return Err(explain(&dump, not_dumped, &[], driver, self.timeline));
        }
        dump.verify()?;
        self.idle.operation.reservation().release();
        let (image, timeline) = (self.image, &mut *self.timeline);
        seal(context, image, &mut manifest, listing, memory, timeline)?;
        if container.init().is_gone() {
            let cause = Cause::Gone;
            return Err(ProcessFailure::of(DriverStep::Query, container.init(), cause).into());
        }
        self.meet(Step::Written)
    }

    fn meet(&mut self, step: Step) -> Result<(), Failure> {
        self.idle.operation.stay_kept()?;
        let PlainDump {
            context,
            companions,
            ..
        } = self.idle;
        companions.meet(step, &context.cancel, self.timeline)
    }

    fn complete(&mut self) -> Result<(), Error> {
        if let Ok(committed) = self.image.take_its_place() {
            self.idle.has_image(None);
            tell(&committed, self.timeline);
        }
        let PlainDump {
            context,
            container,
            operation,
            found,
            ..
        } = self.idle;
        let after_failure = match self.outcome.after {
            AfterDump::LeaveRunning => {
                match self
                    .timeline
                    .time(GO_ON, || reach(operation, container, *found))
                {
                    AfterFailure::AsBefore(_) => return Ok(()),
                    other => other,
                }
            }
            AfterDump::Exit => {
                match self
                    .timeline
                    .time(END, || end(context, container, self.outcome))
                {
                    Ok(()) => {
                        operation.clear();
                        return Ok(());
                    }
                    Err(left) => AfterFailure::ImageComplete(vec![left]),
                }
            }
        };
        Err(self.idle.failed_with(Failure::Unanswered, after_failure))
    }

    fn take_back(&mut self, cause: Failure) -> Error {
        let PlainDump {
            container,
            operation,
            found,
            ..
        } = self.idle;
        self.image.give_up(container.init());
        let after_failure = match container.init().is_gone() {
            true => AfterFailure::Ended,
            false => reach(operation, container, *found),
        };
        self.idle.failed_with(cause, after_failure)
    }
}
