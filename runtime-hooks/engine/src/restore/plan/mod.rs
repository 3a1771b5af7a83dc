//! A restore that passed all checks, up to a container that runs or waits for its start.

mod reach;
mod together;

use std::path::Path;

use stasis_gpu::ledger::amounts::Resource;
use stasis_linux::cgroup::criu_yard;

use crate::bulk_memory::plugin::PluginsForRestore;
use crate::bulk_memory::restore::{MemoryRestore, environment};
use crate::container::spec::Spec;
use crate::context::Context;
use crate::error::after_failure::AfterFailure;
use crate::error::low_level::LowLevelFailure;
use crate::error::{Error, Failure, Refusal};
use crate::image::manifest::Manifest;
use crate::low_level::criu_log::CriuLog;
use crate::low_level::criu_plugins::Environment;
use crate::low_level::restore::{Ended, LowLevelRestore, Restored};
use crate::operation::Operation;
use crate::operation::outcome::SharedOutcome;
use crate::operation::timeline::Timeline;
use crate::operation::undo::{Begun, Restore, Undo};
use crate::operation::verb::Verb;
use crate::recovery::{self, end::end};
use crate::request::{LowLevelArgs, RestoreMode, RestoreRequest};
use crate::restore::admission::{self, Admission};
use crate::restore::hold::{Goal, Hold};
use crate::restore::image;
use crate::restore::mounted::CarriedFiles;
use crate::restore::undo::{refuse_taken, started, to_undo};

/// A restore that passed all checks.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    context: &'a Context,
    options: &'a RestoreRequest,
    goal: Goal<'a>,
    manifest: Manifest,
    admission: Admission,
    /// Declared before the operation, in whose directory it removes its files when dropped.
    memory: Option<MemoryRestore>,
    /// As above.
    hold: Option<Hold>,
    files: CarriedFiles,
    operation: Operation,
    /// The record for undoing the restore.
    undo: Restore,
    plugins: PluginsForRestore,
}

impl<'a> Plan<'a> {
    /// Checks everything that can be checked before something is started.
    pub(crate) fn make(
        context: &'a Context,
        options: &'a RestoreRequest,
        manifest: Manifest,
        goal: Goal<'a>,
    ) -> Result<Self, Refusal> {
        let (id, image) = (&options.id, &options.image_path);
        let plugins = PluginsForRestore::prepare(context)?;
        let operation = recovery::begin(context, id)?;
        let directory = operation.directory();
        let hold = match goal {
            Goal::Running => None,
            Goal::Created | Goal::Together(_) => {
                Some(Hold::prepare(context, options, &operation, &plugins)?)
            }
        };
        let settings = &context.settings;
        let memory = MemoryRestore::find(settings, image, &manifest, &plugins, directory)?;
        let bundle = &options.bundle;
        let bulk = memory.as_ref();
        let admission = admission::admit(context, id, bundle, image, &manifest, bulk, &operation)?;
        let files = CarriedFiles::of(options)?;
        let specification = admission.changed.as_ref().map(Spec::original);
        let undo = to_undo(options, &operation, specification, outcome_of(goal));
        operation.keep(Undo::new(context, id, Begun::Restore(undo.clone())))?;
        Ok(Self {
            undo,
            context,
            options,
            goal,
            manifest,
            admission,
            operation,
            plugins,
            memory,
            hold,
            files,
        })
    }

    pub(crate) fn operation(&self) -> &Operation {
        &self.operation
    }

    pub(crate) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    pub(crate) fn image(&self) -> &Path {
        &self.options.image_path
    }

    fn verb(&self) -> Verb {
        match self.goal {
            Goal::Running | Goal::Together(_) => Verb::Restore,
            Goal::Created => Verb::Create,
        }
    }

    /// Restores the container, and returns once it has reached the goal.
    ///
    /// # Errors
    /// [`Error`]; nothing of the container is left, unless it reports otherwise.
    pub(crate) fn bring_up(
        &self,
        low_level_args: LowLevelArgs<'_>,
        timeline: &mut Timeline<'_>,
    ) -> Result<Restored, Error> {
        for note in self.admission.notes.iter().chain(&self.files.notes) {
            timeline.note(note.as_str());
        }
        let result = match self.prepare() {
            Ok(started) => self
                .restore(low_level_args, timeline)
                .map_err(|cause| (cause, end(self.context, &self.options.id, &started))),
            Err(cause) => Err((cause, AfterFailure::NotStarted)),
        };
        result.map_err(|(cause, after_failure)| {
            criu_yard::clear(self.work());
            if let Some(changed) = &self.admission.changed {
                // The changes would do no harm, but a failed restore leaves none behind.
                let _ = changed.put_back();
            }
            self.files.clear();
            let cause = self.admission.explain(self.context, &self.manifest, cause);
            Error::ending(&self.operation, self.verb(), cause, after_failure)
        })
    }

    /// Prepares the start of the low-level runtime; returns the record for undoing it.
    fn prepare(&self) -> Result<Restore, Failure> {
        match (&self.memory, &self.hold) {
            (Some(memory), hold) => memory.request(hold.as_ref().map(Hold::cgroup))?,
            (None, Some(hold)) => hold.request()?,
            (None, None) => {}
        }
        // The low-level runtime reads device numbers and mount sources there.
        self.admission
            .changed
            .as_ref()
            .map_or(Ok(()), Spec::write)?;
        self.check_may_continue()?;
        refuse_taken(self.context, &self.options.id)?;
        self.files.load()?;
        let started = started(self.context, &self.options.id, &self.undo);
        self.operation.has_begun(Begun::Restore(started.clone()))?;
        Ok(started)
    }

    fn restore(
        &self,
        low_level_args: LowLevelArgs<'_>,
        timeline: &mut Timeline<'_>,
    ) -> Result<Restored, Failure> {
        let low_level =
            LowLevelRestore::new(self.context, self.options, low_level_args, &self.operation);
        let cancel = &self.context.cancel;
        let memory = self.memory.as_ref();
        memory.map_or(Ok(()), |memory| memory.until_arrived(cancel, timeline))?;
        let loaded = match (memory, self.goal) {
            (Some(memory), Goal::Running | Goal::Together(_)) => {
                Some(memory.load(cancel, timeline)?)
            }
            // The time of the container's start is not known.
            (_, Goal::Created) | (None, _) => None,
        };
        let restored = timeline.time("criu restore", || low_level.run(Some(self.environment())));
        let restored = restored.map_err(Failure::start(&self.context.low_level))?;
        image::refuse_exchanged(self.image(), &self.manifest)?;
        // CRIU has filled the host memory.
        self.operation.reservation().retain(Resource::is_of_gpu);
        if let Restored::Over(ended) = &restored {
            self.succeeded(low_level.log(), ended)?;
            if self.options.mode == RestoreMode::Attached {
                // The container has ended before it was seen.
                return Ok(restored);
            }
        }
        if let Some(memory) = &self.memory {
            memory.tell(timeline);
        }
        low_level
            .notes()
            .iter()
            .for_each(|note| timeline.note(note));
        if self.options.mode == RestoreMode::Detached {
            // The container has not been announced yet, so a cancelled restore need not wait for
            // the GPU.
            self.check_may_continue()?;
        }
        match self.goal {
            Goal::Running => self.restore_gpu_state(loaded, timeline)?,
            Goal::Created => self.leave_to_start()?,
            Goal::Together(companions) => self.wait_for_others(companions, loaded, timeline)?,
        }
        Ok(restored)
    }

    fn environment(&self) -> Environment<'_> {
        let request = self.hold.as_ref().map(Hold::request_file);
        environment(&self.plugins, self.memory.as_ref(), request)
    }

    fn check_may_continue(&self) -> Result<(), Failure> {
        if self.context.cancel.requested() {
            return Err(Failure::Cancelled);
        }
        Ok(self.operation.stay_kept()?)
    }

    /// CRIU's work directory.
    fn work(&self) -> &Path {
        self.options.work()
    }

    fn succeeded(&self, log: &CriuLog, ended: &Ended) -> Result<(), Failure> {
        // A runtime that was ended may have succeeded at last: its tasks were ended all the same.
        if ended.status.success() && ended.hung.is_none() {
            return Ok(());
        }
        let failed = LowLevelFailure::of_restore(self.context, self.options, log, ended);
        Err(Failure::LowLevel(Box::new(failed)))
    }
}

fn outcome_of(goal: Goal<'_>) -> Option<SharedOutcome> {
    match goal {
        Goal::Together(companions) => companions.outcome().cloned(),
        Goal::Running | Goal::Created => None,
    }
}
