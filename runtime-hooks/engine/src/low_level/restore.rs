//! The low-level runtime's part of a restore: with CRIU it brings the processes back.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::Duration;

use stasis_linux::exit_status;

use crate::container::spec::Spec;
use crate::context::Context;
use crate::low_level;
use crate::low_level::at_restore::{self, AtRestore};
use crate::low_level::criu_log::CriuLog;
use crate::low_level::criu_plugins::Environment;
use crate::low_level::forward_signals::{Forward, QueuedSignals};
use crate::low_level::watch::{Hung, Victims, Watch};
use crate::operation::Operation;
use crate::request::{LowLevelArgs, RestoreMode, RestoreRequest};

/// How often an attached restore checks whether the container is up.
const POLL: Duration = Duration::from_millis(2);

/// One run of the low-level runtime.
pub(crate) struct LowLevelRestore<'a> {
    context: &'a Context,
    options: &'a RestoreRequest,
    low_level_args: LowLevelArgs<'a>,
    /// As before CRIU was started. CRIU logs to the image directory unless the caller named another
    /// one.
    log: CriuLog,
    /// Written once the container is up.
    pid_file: PathBuf,
    /// The operation's directory.
    directory: PathBuf,
}

/// How the low-level runtime ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// Whether it had to be ended.
    pub(crate) hung: Option<Hung>,
}

/// The state of the low-level runtime after a restore.
#[derive(Debug)]
pub(crate) enum Restored {
    /// It has ended: after a detached restore, or before an attached container was seen to be up.
    Over(Ended),
    /// It stays as the parent of a container that is up.
    Attached(Child, Forward),
}

impl Restored {
    /// Whether the container came up, also if it has ended since.
    pub(crate) fn is_up_or_was(&self) -> bool {
        match self {
            Self::Over(ended) => ended.status.success(),
            Self::Attached(..) => true,
        }
    }

    /// Returns the low-level runtime's exit code; for an attached container, waits for its end.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Over(ended) => exit_status::code(ended.status),
            // If wait(2) fails, the child counts as failed.
            Self::Attached(mut child, _forward) => child.wait().map_or(1, exit_status::code),
        }
    }
}

/// The file that the low-level runtime writes once the container is up: the caller's or our own.
pub(crate) fn pid_file(options: &RestoreRequest, operation: &Operation) -> PathBuf {
    let own = || operation.directory().join("init.pid");
    options.pid_file.clone().unwrap_or_else(own)
}

impl<'a> LowLevelRestore<'a> {
    pub(crate) fn new(
        context: &'a Context,
        options: &'a RestoreRequest,
        low_level_args: LowLevelArgs<'a>,
        operation: &Operation,
    ) -> Self {
        Self {
            context,
            options,
            low_level_args,
            log: CriuLog::before(
                context.low_level.flavor,
                Spec::read(&options.bundle).ok(),
                options.work(),
                "restore.log",
            ),
            pid_file: pid_file(options, operation),
            directory: operation.directory().to_owned(),
        }
    }

    pub(crate) fn log(&self) -> &CriuLog {
        &self.log
    }

    /// Notes on state that a successful restore did not bring back.
    pub(crate) fn notes(&self) -> Vec<String> {
        at_restore::notes(&self.directory, &self.options.image_path)
    }

    /// Runs it: to its end if the restore is detached, otherwise until the container is up. `criu`
    /// is the environment for CRIU, if it needs one.
    pub(crate) fn run(&self, criu: Option<Environment<'_>>) -> io::Result<Restored> {
        match self.options.mode {
            RestoreMode::Detached => {
                let mut child = self.start(criu)?;
                let hung = self.watch(&child).wait().err();
                let status = child.wait()?;
                Ok(Restored::Over(Ended { status, hung }))
            }
            RestoreMode::Attached => {
                // A file of an earlier container would look like this one's.
                let _ = fs::remove_file(&self.pid_file);
                let signals = QueuedSignals::from_now()?;
                let mut child = self.start(criu)?;
                let forward = signals.forward_to(&child);
                Ok(match self.wait_until_up(&mut child)? {
                    Some(ended) => Restored::Over(ended),
                    None => Restored::Attached(child, forward),
                })
            }
        }
    }

    fn start(&self, criu: Option<Environment<'_>>) -> io::Result<Child> {
        let low_level = &self.context.low_level;
        low_level::clear_bundle(low_level, &self.options.bundle);
        // This is the one of the caller's paths to the image that was checked.
        let image = self.options.image_path.as_os_str();
        let mut ours: Vec<(&str, &OsStr)> = vec![("--image-path", image)];
        if self.options.pid_file.is_none() {
            ours.push(("--pid-file", self.pid_file.as_os_str()));
        }
        let args = (self.low_level_args)(&ours);
        let state_dir = &self.context.settings.paths.state_dir;
        let places = (&*self.options.image_path, &*self.options.bundle);
        let set_up = AtRestore::prepare(state_dir, low_level.flavor, places, &self.directory)?;
        low_level::start(low_level, &args, criu, set_up.as_ref(), self.options.mode)
    }

    fn watch(&self, child: &Child) -> Watch {
        let limit = self.context.settings.deadlines.stalled();
        Watch::of(child, limit, Victims::All)
    }

    /// Returns `None` once the container is up, or how the low-level runtime ended before that.
    fn wait_until_up(&self, child: &mut Child) -> io::Result<Option<Ended>> {
        let mut watch = self.watch(child);
        let mut hung = None;
        loop {
            // The low-level runtime writes the file whole (rename) and after everything else.
            match child.try_wait()? {
                Some(status) => return Ok(Some(Ended { status, hung })),
                None if self.pid_file.exists() => return Ok(None),
                None => {}
            }
            hung = hung.or_else(|| watch.look());
            thread::sleep(POLL);
        }
    }
}
