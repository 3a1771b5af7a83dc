//! One call of a runtime: its command line, its exit status, and its error.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Signal, pidfd_send_signal};
use tokio::time::timeout;

use crate::child::reaper::Reaper;
use crate::child::{Child, ChildOutput, spawn, spawn_captured};
use crate::runtime::error::RuntimeError;
use crate::runtime::log::{Mark, RuntimeMessage, last_error};
use crate::stdio::Streams;

/// A call of a runtime that has not been started.
#[derive(Debug)]
pub(crate) struct RuntimeCall<'r> {
    verb: &'static str,
    command: Command,
    log: &'r Path,
    reaper: &'r Arc<Reaper>,
    deadline: Option<Duration>,
}

/// A call of a runtime that is under way.
#[derive(Debug)]
pub(crate) struct RunningCall {
    verb: &'static str,
    child: Child,
    mark: Mark,
    deadline: Option<Duration>,
}

/// How the program is started: with the streams that its command has, or with its output captured.
type Spawn = fn(&Arc<Reaper>, Command) -> io::Result<Child>;

impl<'r> RuntimeCall<'r> {
    /// A call for `verb`. `command` has the arguments before the verb; `log` is the file that they
    /// name as the runtime's log.
    pub(crate) fn new(
        verb: &'static str,
        mut command: Command,
        log: &'r Path,
        reaper: &'r Arc<Reaper>,
    ) -> Self {
        command.arg(verb);
        Self {
            verb,
            command,
            log,
            reaper,
            deadline: None,
        }
    }

    /// Adds an argument.
    pub(crate) fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    /// Adds an option with its value.
    pub(crate) fn option(self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.arg(name).arg(value)
    }

    /// Adds an option if there is a value for it.
    pub(crate) fn option_if<V: AsRef<OsStr>>(self, name: &str, value: Option<V>) -> Self {
        match value {
            Some(value) => self.option(name, value),
            None => self,
        }
    }

    /// Adds an option without a value, if it is set.
    pub(crate) fn switch(self, name: &str, set: bool) -> Self {
        if set { self.arg(name) } else { self }
    }

    /// Has the call killed when it takes longer than this. `stasis-runtime` has deadlines of its
    /// own, and must not be killed half-way.
    pub(crate) fn within(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Runs the call and waits for it.
    pub(crate) async fn run(self) -> Result<(), RuntimeError> {
        self.output().await.map(drop)
    }

    /// Runs the call, waits for it, and returns its standard output.
    pub(crate) async fn output(self) -> Result<Vec<u8>, RuntimeError> {
        self.start().map(RunningCall::wait)?.await
    }

    /// Starts the call.
    pub(crate) fn start(self) -> Result<RunningCall, RuntimeError> {
        self.start_by(spawn_captured)
    }

    /// Starts the call; the runtime hands the streams to the container's process.
    pub(crate) fn start_with(mut self, streams: Streams) -> Result<RunningCall, RuntimeError> {
        streams.give_to(&mut self.command);
        self.start_by(spawn)
    }

    fn start_by(self, spawn: Spawn) -> Result<RunningCall, RuntimeError> {
        let program = PathBuf::from(self.command.get_program());
        let mark = Mark::at_end_of(self.log);
        let child = spawn(self.reaper, self.command)
            .map_err(|source| RuntimeError::Start { program, source })?;
        Ok(RunningCall {
            verb: self.verb,
            child,
            mark,
            deadline: self.deadline,
        })
    }
}

impl RunningCall {
    /// The runtime's pid.
    pub(crate) fn pid(&self) -> u32 {
        self.child.pid
    }

    /// The runtime's pidfd.
    pub(crate) fn process(&self) -> io::Result<OwnedFd> {
        self.child.process.try_clone()
    }

    /// Waits until the runtime has ended, and returns its standard output.
    pub(crate) async fn wait(self) -> Result<Vec<u8>, RuntimeError> {
        let process = self.process();
        let wait = self.child.wait();
        let ended = match self.deadline {
            None => wait.await,
            Some(deadline) => match timeout(deadline, wait).await {
                Ok(ended) => ended,
                Err(_) => return Err(killed(self.verb, deadline, process)),
            },
        };
        if ended.exit.status == 0 {
            return Ok(ended.stdout);
        }
        Err(RuntimeError::Failed {
            verb: self.verb,
            message: error_message(&self.mark, &ended),
        })
    }
}

/// Kills a runtime that has taken too long.
fn killed(verb: &'static str, deadline: Duration, process: io::Result<OwnedFd>) -> RuntimeError {
    let signalled = process.map(|process| pidfd_send_signal(process, Signal::KILL));
    if let Err(error) = signalled {
        log::warn!("a hanging runtime cannot be killed: {error}");
    }
    let text = format!(
        "it had not ended after {} s, and was killed",
        deadline.as_secs()
    );
    RuntimeError::Failed {
        verb,
        message: RuntimeMessage::new(text),
    }
}

/// The error in the runtime's log, else the first line of its standard error.
fn error_message(mark: &Mark, ended: &ChildOutput) -> RuntimeMessage {
    last_error(mark)
        .or_else(|| first_line(&ended.stderr).map(RuntimeMessage::new))
        .unwrap_or_else(|| {
            let status = ended.exit.status;
            RuntimeMessage::new(format!("exit status {status}, without an error message"))
        })
}

fn first_line(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}
