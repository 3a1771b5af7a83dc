//! The checkpoint of a container without GPU state. The low-level runtime writes the image. It
//! runs as our child, because a process may start CUDA during the dump if the container has a GPU.

use std::io::{self, Write};
use std::path::Path;
use std::process::Output;

use stasis_linux::cgroup::FreezerState;
use stasis_linux::exit_status;

use crate::bulk_memory::dump::MemoryDump;
use crate::bulk_memory::plugin::{GpuState, Plugins};
use crate::checkpoint::dump::{Dump, NotDumped, log_of};
use crate::checkpoint::explain_failed_dump::{of_dump, started_cuda};
use crate::checkpoint::late_exec;
use crate::checkpoint::seal::{Listing, describe, seal, unsealed};
use crate::companions::Companions;
use crate::container::mounted::are_told_of;
use crate::container::{Container, ContainerError};
use crate::context::{Context, Outcome};
use crate::error::after_failure::AfterFailure;
use crate::error::operations_log;
use crate::error::{Error, Failure};
use crate::image::directory::{NewImage, is_ours};
use crate::image::manifest::{Manifest, ManifestError};
use crate::low_level::Ran;
use crate::operation::Operation;
use crate::operation::progress::Progress;
use crate::operation::timeline::Timeline;
use crate::operation::undo::Begun;
use crate::operation::verb::Verb;
use crate::preflight::cuda_processes::open_driver;
use crate::request::{CheckpointRequest, LowLevelArgs};

/// The dump of a container without GPU state.
#[derive(Debug)]
pub struct PlainDump<'a> {
    pub(crate) context: &'a Context,
    pub(crate) options: &'a CheckpointRequest,
    pub(crate) container: Container,
    pub(crate) operation: Operation,
    pub(crate) found: FreezerState,
    pub(crate) companions: &'a dyn Companions,
}

impl PlainDump<'_> {
    /// Lets the low-level runtime write the image, and passes its output on. CRIU's own CUDA plugin
    /// is disabled: nothing could restore an image with GPU state but without a manifest.
    ///
    /// # Errors
    /// [`Failure::CudaStartedDuringDump`] if the dump failed and a process uses CUDA now: the
    /// caller may try again. The low-level runtime reports all other failures itself.
    pub(crate) fn dump(&self, low_level_args: LowLevelArgs<'_>) -> Result<Outcome, Error> {
        let (context, id) = (self.context, &self.options.id);
        let plugins = Plugins::for_checkpoint(context, self.options, GpuState::None)
            .map_err(|reason| operations_log::refused(context, Verb::Checkpoint, id, reason))?;
        if context.cancel.requested() {
            return Err(self.failed(Failure::Cancelled));
        }
        let progress = Progress::begin(context, &self.operation, Verb::Checkpoint);
        let mut timeline = Timeline::with_progress(progress).of_image(&self.options.image_path);
        let image = NewImage::begin(&context.settings, &self.options.image_path, None)
            .map_err(|reason| operations_log::refused(context, Verb::Checkpoint, id, reason))?;
        self.has_image(Some(image.directory()));
        let dumped = self.dump_into(&image, &plugins, low_level_args, &mut timeline);
        if is_news(&dumped, &timeline, image.directory()) {
            let error = dumped.as_ref().err();
            operations_log::write(context, Verb::Checkpoint, id, &timeline, error);
        }
        let output = dumped?;
        // Errors are ignored: a caller that has closed the stream does not need the output.
        let _ = io::stdout().write_all(&output.stdout);
        let _ = io::stderr().write_all(&output.stderr);
        Ok(Outcome::Done(exit_status::code(output.status)))
    }

    fn dump_into(
        &self,
        image: &NewImage,
        plugins: &Plugins,
        low_level_args: LowLevelArgs<'_>,
        timeline: &mut Timeline<'_>,
    ) -> Result<Output, Error> {
        let (context, options) = (self.context, self.options);
        let (container, operation) = (&self.container, &self.operation);
        let failed = |failure| {
            image.give_up(container.init());
            self.failed(failure)
        };
        let mut memory =
            MemoryDump::begin(context, options, image, plugins, operation).map_err(failed)?;
        let snapshot = container.snapshot().map_err(ContainerError::Processes);
        let snapshot = snapshot.map_err(|error| failed(error.into()))?;
        let notes = late_exec::refuse_or_note(context, options, &snapshot);
        for note in notes.map_err(|error| failed(error.into()))? {
            timeline.note(note);
        }
        let (mut manifest, listing) = self
            .manifest_in(image)
            .map_err(|error| failed(error.into()))?;
        let mut dump = Dump {
            context,
            operation,
            options,
            container,
            image,
            memory: &mut memory,
            log: log_of(context, container, options),
            recorded: &[],
            exec: &[],
        };
        let output = match dump.run(low_level_args, timeline) {
            Ok(output) => output,
            Err(NotDumped::Refused(failure)) => return Err(failed(failure)),
            Err(NotDumped::Failed(ran)) => return self.explain(&dump, *ran),
        };
        let verified = dump.verify();
        verified.map_err(|error| failed(error.into()))?;
        self.operation.reservation().release();
        let sealed = seal(
            context,
            image,
            &mut manifest,
            listing,
            &mut memory,
            timeline,
        );
        if sealed.is_ok() {
            self.has_image(None);
        }
        match sealed {
            Ok(()) => Ok(output),
            Err(cause) => Err(match unsealed(&cause, image, &mut memory, container) {
                Some(ended) => self.failed_with(cause, ended),
                None => self.failed(cause),
            }),
        }
    }

    /// Makes the manifest, and writes it into an image that lists its files.
    pub(super) fn manifest_in(
        &self,
        image: &NewImage,
    ) -> Result<(Manifest, Listing), ManifestError> {
        let created = self.context.began_text();
        let mut manifest = Manifest::new(self.container.id(), created, String::new());
        if !self.is_listed(image.directory()) {
            return Ok((manifest, Listing::IfItCarriesFiles));
        }
        describe(&mut manifest, image.path())?;
        Ok((manifest, Listing::Begun))
    }

    fn is_listed(&self, image: &Path) -> bool {
        are_told_of(&self.context.settings, &self.container, image)
    }

    /// Returns the failure if CUDA caused it, or the runtime had to be ended, or the image would
    /// not have been its alone; otherwise its output is the report.
    fn explain(&self, dump: &Dump<'_, '_>, ran: Ran) -> Result<Output, Error> {
        dump.image.give_up(self.container.init());
        let late = open_driver(self.context, self.container.id())
            .ok()
            .and_then(|driver| started_cuda(&driver, &self.container, &[]));
        let cgroup = self.container.cgroup();
        let refrozen = match self.found {
            _ if self.container.init().is_gone() => Ok(()),
            // A killed CRIU thaws nothing.
            found => cgroup.reach(found),
        };
        let is_ours = self.is_listed(&self.options.image_path);
        if late.is_none() && refrozen.is_ok() && ran.hung.is_none() && !is_ours {
            return Ok(ran.output);
        }
        let failure = of_dump(dump.low_level_failure(&ran), late);
        Err(match refrozen {
            Ok(()) => self.failed(failure),
            Err(error) => self.failed_with(failure, AfterFailure::Freezer(error)),
        })
    }

    /// Records the image that has to be given up if this process is killed.
    pub(super) fn has_image(&self, image: Option<&Path>) {
        // Without it, what is cut off of an image stays until the next checkpoint.
        let begun = Begun::Checkpoint {
            found: self.found,
            image: image.map(Path::to_owned),
            shared: self.companions.outcome().cloned(),
        };
        let _ = self.operation.has_begun(begun);
    }

    fn failed(&self, failure: Failure) -> Error {
        let after_failure = if self.container.init().is_gone() {
            AfterFailure::Ended
        } else {
            AfterFailure::AsBefore(self.found)
        };
        self.failed_with(failure, after_failure)
    }

    pub(super) fn failed_with(&self, failure: Failure, after_failure: AfterFailure) -> Error {
        Error::ending(&self.operation, Verb::Checkpoint, failure, after_failure)
    }
}

/// Whether the dump differs from what the low-level runtime alone would have done.
fn is_news(dumped: &Result<Output, Error>, timeline: &Timeline<'_>, image: &Path) -> bool {
    match dumped {
        Err(_) => true,
        Ok(output) => {
            let success = output.status.success();
            success && (is_ours(image) || !timeline.notes().is_empty())
        }
    }
}
