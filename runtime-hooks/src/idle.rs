//! A container with a GPU that no process uses now. Its image is the low-level runtime's, but a
//! process may start CUDA while that is being made, so the low-level runtime does not take our place.

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
use crate::invocation::CheckpointOptions;
use crate::low_level;
use crate::newcomer;
use crate::operation::Operation;
use crate::operation_log;
use crate::preflight::prepare_plugins;
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
    /// trying again. No other failure is ours to tell.
    pub(crate) fn dump(&self, args: &[OsString]) -> Result<Outcome, Error> {
        let (engine, id) = (self.engine, &self.options.id);
        let plugins = prepare_plugins(engine)
            .map_err(|reason| Error::refused(Verb::Checkpoint, id, reason))?;
        if engine.cancel.requested() {
            return Err(self.failed(Failure::Cancelled));
        }
        let progress = Progress::begin(engine, &self.operation, Verb::Checkpoint);
        let mut timeline = Timeline::told_by(progress);
        let dumped = timeline.time("dump", || low_level::run(&engine.low_level, args, &plugins));
        let output = dumped.map_err(|source| {
            let path = engine.low_level.path.clone();
            self.failed(Failure::Start { path, source })
        })?;
        if let Some(error) = self.overtaken(&output) {
            operation_log::write(engine, Verb::Checkpoint, id, &timeline, Some(&error));
            return Err(error);
        }
        // As if it had taken our place; who has closed the stream does not want to hear it.
        let _ = io::stdout().write_all(&output.stdout);
        let _ = io::stderr().write_all(&output.stderr);
        Ok(Outcome::Done(exit_status::code(output.status)))
    }

    fn overtaken(&self, output: &Output) -> Option<Error> {
        if output.status.success() {
            return None;
        }
        let driver = self.engine.open_driver(self.container.id()).ok()?;
        let newcomer = newcomer::find(&driver, &self.container, &[]);
        let refrozen = match self.found {
            FreezerState::Frozen => self.container.cgroup().freeze(),
            FreezerState::Thawed => Ok(()),
        };
        let dump = || failure_of(self.engine, self.options, output);
        match (newcomer, refrozen) {
            (None, Ok(())) => None,
            (Some(newcomer), Ok(())) => Some(self.failed(newcomer::overtaken(&newcomer, dump()))),
            (_, Err(error)) => {
                let (failure, aftermath) = (Failure::LowLevel(dump()), Aftermath::Freezer(error));
                let id = self.container.id();
                Some(Error::failed(Verb::Checkpoint, id, failure, aftermath))
            }
        }
    }

    fn failed(&self, failure: Failure) -> Error {
        let aftermath = Aftermath::Unharmed(self.found);
        Error::failed(Verb::Checkpoint, self.container.id(), failure, aftermath)
    }
}
