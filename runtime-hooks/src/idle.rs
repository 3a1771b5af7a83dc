//! A container without GPU state. Its image is the low-level runtime's, but a process may start CUDA while that is being
//! made, if it has a GPU, and our CRIU plugin may move its bulk memory. So the low-level runtime does not take our place.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::Output;

use crate::aftermath::Aftermath;
use crate::cgroup::FreezerState;
use crate::container::Container;
use crate::dump::failure_of;
use crate::engine::{Engine, Outcome};
use crate::error::{Error, Failure, Verb};
use crate::exit_status;
use crate::gauge::Gauge;
use crate::invocation::CheckpointOptions;
use crate::low_level;
use crate::manifest::{Manifest, ManifestError, StoredMemory};
use crate::memory_dump::MemoryDump;
use crate::memory_plugin::Plugins;
use crate::newcomer;
use crate::operation::Operation;
use crate::operation_log;
use crate::progress::Progress;
use crate::timeline::Timeline;

/// A container to be dumped without GPU state.
#[derive(Debug)]
pub struct Idle<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) options: &'a CheckpointOptions,
    pub(crate) container: Container,
    pub(crate) operation: Operation,
    pub(crate) found: FreezerState,
}

impl Idle<'_> {
    /// Lets the low-level runtime make its image, and hands on what it says. CRIU's own CUDA plugin
    /// stays out of it: an image with GPU state that has no manifest would be nobody's to restore.
    ///
    /// # Errors
    /// It failed, and a process uses CUDA now: [`Failure::Overtaken`], which the caller may answer by
    /// trying again. Or our CRIU plugin had a part in it. No other failure is ours to tell.
    pub(crate) fn dump(&self, args: &[OsString]) -> Result<Outcome, Error> {
        let (engine, id) = (self.engine, &self.options.id);
        let plugins = Plugins::for_checkpoint(engine, self.options)
            .map_err(|reason| Error::refused(Verb::Checkpoint, id, reason))?;
        if engine.cancel.requested() {
            return Err(self.failed(Failure::Cancelled));
        }
        let progress = Progress::begin(engine, &self.operation, Verb::Checkpoint);
        let mut timeline = Timeline::told_by(progress);
        let dumped = self.dump_with(&plugins, args, &mut timeline);
        if is_news(&dumped, &timeline) {
            let error = dumped.as_ref().err();
            operation_log::write(engine, Verb::Checkpoint, id, &timeline, error);
        }
        let output = dumped?;
        // As if it had taken our place; who has closed the stream does not want to hear it.
        let _ = io::stdout().write_all(&output.stdout);
        let _ = io::stderr().write_all(&output.stderr);
        Ok(Outcome::Done(exit_status::code(output.status)))
    }

    fn dump_with(
        &self,
        plugins: &Plugins,
        args: &[OsString],
        timeline: &mut Timeline<'_>,
    ) -> Result<Output, Error> {
        let (engine, options) = (self.engine, self.options);
        let (container, operation) = (&self.container, &self.operation);
        let memory = MemoryDump::order(engine, options, plugins, container, operation, timeline)
            .map_err(|failure| self.failed(failure))?;
        let image = &options.image_path;
        let gauge = Gauge::dump(container, image, engine.began, memory.progress());
        let dumped = timeline.time_moving("dump", gauge, || {
            let _huge_pages = memory.huge_pages();
            low_level::run(&engine.low_level, args, memory.environment())
        });
        let output = dumped.map_err(|source| {
            let path = engine.low_level.path.clone();
            self.failed(Failure::Start { path, source })
        })?;
        if !output.status.success() {
            let error = self.explain(&output, &memory);
            return error.map_or(Ok(output), Err);
        }
        let not_returned = memory.not_returned();
        match memory.succeeded(timeline) {
            None => memory.remove_unused(),
            Some(stored) => {
                if let Err(error) = self.describe(stored, timeline) {
                    // It restores without: its index says as much.
                    timeline.note(error.to_string());
                }
            }
        }
        not_returned.map_or(Ok(output), |why| {
            let aftermath = Aftermath::ImageCompleteWithoutMemory;
            Err(self.failed_so(Failure::NotReturned(why), aftermath))
        })
    }

    /// The manifest of an image with bulk memory and without GPU state.
    fn describe(&self, stored: StoredMemory, timeline: &Timeline<'_>) -> Result<(), ManifestError> {
        let created = self.engine.began_text();
        let mut manifest = Manifest::new(self.container.id(), created, String::new());
        manifest.memory = Some(stored);
        manifest.phases = timeline.phases().to_vec();
        manifest.write(&self.options.image_path)
    }

    /// What of a dump that failed is ours to tell.
    fn explain(&self, output: &Output, memory: &MemoryDump<'_>) -> Option<Error> {
        let said = memory.failed();
        if said.not_returned.is_some() {
            // Nothing that waits for its memory answers the driver.
            let dump = failure_of(self.engine, self.options, output, said);
            return Some(self.failed_so(Failure::LowLevel(dump), Aftermath::WithoutMemory));
        }
        let newcomer = self
            .engine
            .open_driver(self.container.id())
            .ok()
            .and_then(|driver| newcomer::find(&driver, &self.container, &[]));
        let cgroup = self.container.cgroup();
        let refrozen = match self.found {
            _ if self.container.init().is_gone() => Ok(()),
            FreezerState::Frozen => cgroup.freeze(),
            // A CRIU that was killed does not.
            FreezerState::Thawed => cgroup.thaw(),
        };
        let is_not_ours = said.is_without_part();
        let dump = || failure_of(self.engine, self.options, output, said);
        match (newcomer, refrozen) {
            (None, Ok(())) if is_not_ours => None,
            (None, Ok(())) => Some(self.failed(Failure::LowLevel(dump()))),
            (Some(newcomer), Ok(())) => Some(self.failed(newcomer::overtaken(&newcomer, dump()))),
            (_, Err(error)) => {
                let (failure, aftermath) = (Failure::LowLevel(dump()), Aftermath::Freezer(error));
                Some(self.failed_so(failure, aftermath))
            }
        }
    }

    fn failed(&self, failure: Failure) -> Error {
        let aftermath = if self.container.init().is_gone() {
            Aftermath::Ended
        } else {
            Aftermath::AsBefore(self.found)
        };
        self.failed_so(failure, aftermath)
    }

    fn failed_so(&self, failure: Failure, aftermath: Aftermath) -> Error {
        Error::failed(Verb::Checkpoint, self.container.id(), failure, aftermath)
    }
}

/// What the low-level runtime would have done as well is none.
fn is_news(dumped: &Result<Output, Error>, timeline: &Timeline<'_>) -> bool {
    let has_moved = timeline
        .bulk_memory()
        .is_some_and(|report| report.areas > 0);
    match dumped {
        Err(_) => true,
        Ok(output) => output.status.success() && (has_moved || !timeline.notes().is_empty()),
    }
}
