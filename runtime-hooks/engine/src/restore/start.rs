//! The `start` of a container that was created from an image: its processes go on, and get their
//! GPUs.
//!
//! The driver answers nothing for a frozen process, so they are thawed first; a call of theirs to
//! CUDA waits until its process is unlocked, as ever after a restore.

use crate::bulk_memory::plugin::PluginsForRestore;
use crate::bulk_memory::restore::MemoryRestore;
use crate::container::Container;
use crate::context::{Context, Outcome};
use crate::error::after_failure::AfterFailure;
use crate::error::hold::HoldError;
use crate::error::operations_log;
use crate::error::{Error, Failure, Refusal};
use crate::image::manifest::Manifest;
use crate::operation::Operation;
use crate::operation::awaited_start::{AwaitedStart, awaits_start};
use crate::operation::progress::Progress;
use crate::operation::timeline::Timeline;
use crate::operation::undo::{Begun, Restore, Stage, Undo};
use crate::operation::verb::Verb;
use crate::recovery::begin_to_start;
use crate::recovery::end::end;
use crate::restore::admission::{self, Admission};
use crate::restore::gpu_state::{restore_gpu_state, verify};
use crate::restore::hook::tell_program;

/// Starts a container that waits for it; passes others on to the low-level runtime.
///
/// # Errors
/// [`Error`]: a refused start can be tried again, a failed one has ended the container.
pub fn start(context: &Context, id: &str) -> Result<Outcome, Error> {
    if !awaits_start(&context.settings.paths.state_dir, &context.root, id) {
        return Ok(Outcome::PassThrough);
    }
    let refused = |reason| operations_log::refused(context, Verb::Start, id, reason);
    let Some(plan) = Plan::make(context, id).map_err(refused)? else {
        return Ok(Outcome::PassThrough);
    };
    let progress = Progress::begin(context, &plan.operation, Verb::Start);
    let mut timeline = Timeline::with_progress(progress).of_image(&plan.awaited.image);
    let result = plan.carry_out(&mut timeline).map_err(|cause| {
        let after_failure = match end(context, id, &plan.undo) {
            AfterFailure::Killed => AfterFailure::EndedAtStart,
            other => other,
        };
        Error::ending(&plan.operation, Verb::Start, cause, after_failure)
    });
    // Also for a container that was ended.
    plan.operation.awaits_no_start();
    operations_log::write(context, Verb::Start, id, &timeline, result.as_ref().err());
    result.map(|()| Outcome::Done(0))
}

/// A start that passed all checks.
struct Plan<'a> {
    context: &'a Context,
    container: Container,
    awaited: AwaitedStart,
    gpu: Option<Gpu>,
    operation: Operation,
    undo: Restore,
}

/// The GPU state that the processes get.
struct Gpu {
    manifest: Manifest,
    memory: Option<MemoryRestore>,
    admission: Admission,
}

impl<'a> Plan<'a> {
    /// `None` if there is nothing to start: the low-level runtime reports it.
    fn make(context: &'a Context, id: &str) -> Result<Option<Self>, Refusal> {
        let operation = begin_to_start(context.settings.deadlines.stalled(), context, id)?;
        let Some(awaited) = operation.awaited_start()? else {
            return Ok(None);
        };
        let Some(container) = context.container(id)? else {
            operation.awaits_no_start();
            return Ok(None);
        };
        let gpu = match &awaited.manifest {
            Some(identity) => Some(Gpu::find(context, id, &awaited, identity, &operation)?),
            None => None,
        };
        let undo = Restore {
            work: awaited.bundle.clone(),
            bundle: awaited.bundle.clone(),
            pid_file: None,
            specification: None,
            cgroup: None,
            mounts: None,
            stage: Stage::Started,
            shared: None,
        };
        operation.keep(Undo::new(context, id, Begun::Restore(undo.clone())))?;
        Ok(Some(Self {
            context,
            container,
            awaited,
            gpu,
            operation,
            undo,
        }))
    }

    fn carry_out(&self, timeline: &mut Timeline<'_>) -> Result<(), Failure> {
        let (context, id) = (self.context, self.container.id());
        let loaded = match self.gpu.as_ref().and_then(|gpu| gpu.memory.as_ref()) {
            Some(memory) => Some(memory.load(&context.cancel, timeline)?),
            None => None,
        };
        timeline.time("thaw", || self.container.cgroup().thaw())?;
        if let Some(Gpu {
            manifest,
            admission,
            ..
        }) = &self.gpu
        {
            for note in &admission.notes {
                timeline.note(note.as_str());
            }
            if let Some(gpus) = &admission.gpus {
                restore_gpu_state(context, id, gpus, manifest, loaded, timeline)?;
            }
        }
        self.operation.reservation().release();
        verify(context, &self.container)?;
        if self.gpu.is_some() {
            tell_program(context, &self.operation, id, timeline);
        }
        Ok(())
    }
}

impl Gpu {
    /// Finds the GPU state again, and reserves room for it.
    fn find(
        context: &Context,
        id: &str,
        awaited: &AwaitedStart,
        identity: &str,
        operation: &Operation,
    ) -> Result<Self, Refusal> {
        let image = &awaited.image;
        let manifest = Manifest::read(image)?.filter(|found| found.identity() == identity);
        let manifest = manifest.ok_or_else(|| HoldError::Exchanged(image.clone()))?;
        let settings = &context.settings;
        let plugins = PluginsForRestore::prepare(context)?;
        let directory = operation.directory();
        let memory = MemoryRestore::find(settings, image, &manifest, &plugins, directory)?;
        let (bundle, bulk) = (&awaited.bundle, memory.as_ref());
        let admission = admission::admit(context, id, bundle, image, &manifest, bulk, operation)?;
        Ok(Self {
            manifest,
            memory,
            admission,
        })
    }
}
