//! One call of a runtime: its command line, its exit status, and its error.

use std::ffi::OsStr;
use std::future::pending;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::sleep;

use crate::child::reaper::Reaper;
use crate::child::{Child, ChildOutput, spawn, spawn_captured};
use crate::error::{Error, Result, RuntimeMessage};
use crate::runtime::log::{Mark, last_error};
use crate::runtime::process::RuntimeProcess;
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

    /// Has the call killed when it takes longer than this, but not while it is `stasis-runtime`,
    /// which has deadlines of its own and must not be killed half-way.
    pub(crate) fn within(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Runs the call and waits for it.
    pub(crate) async fn run(self) -> Result<()> {
        self.output().await.map(drop)
    }

    /// Runs the call, waits for it, and returns its standard output.
    pub(crate) async fn output(self) -> Result<Vec<u8>> {
        self.start().map(RunningCall::wait)?.await
    }

    /// Starts the call.
    pub(crate) fn start(self) -> Result<RunningCall> {
        self.start_by(spawn_captured)
    }

    /// Starts the call; the runtime hands the streams to the container's process.
    pub(crate) fn start_with(mut self, streams: Streams) -> Result<RunningCall> {
        streams.give_to(&mut self.command);
        self.start_by(spawn)
    }

    fn start_by(self, spawn: Spawn) -> Result<RunningCall> {
        let program = PathBuf::from(self.command.get_program());
        let mark = Mark::at_end_of(self.log);
        let child = spawn(self.reaper, self.command)
            .map_err(Error::cannot(format!("start {program:?}")))?;
        Ok(RunningCall {
            verb: self.verb,
            child,
            mark,
            deadline: self.deadline,
        })
    }
}

impl RunningCall {
    /// The runtime's process.
    pub(crate) fn process(&self) -> io::Result<RuntimeProcess> {
        let process = self.child.process.try_clone()?;
        Ok(RuntimeProcess::new(self.child.pid, process))
    }

    /// Waits until the runtime has ended, and returns its standard output.
    pub(crate) async fn wait(self) -> Result<Vec<u8>> {
        self.wait_unless(pending()).await
    }

    /// Waits until the runtime has ended, and returns its standard output. Kills a low-level
    /// runtime once `useless` returns why it is not needed any longer.
    pub(crate) async fn wait_unless(
        self,
        useless: impl Future<Output = &'static str>,
    ) -> Result<Vec<u8>> {
        let verb = self.verb;
        let process = self
            .process()
            .map_err(Error::cannot(format!("watch OCI runtime {verb}")))?;
        let given_up = async {
            let reason = tokio::select! {
                reason = useless => reason.to_owned(),
                after = passed(self.deadline) => format!("it had not ended after {} s", after.as_secs()),
            };
            process.becomes_low_level().await;
            reason
        };
        let ended = tokio::select! {
            biased;
            ended = self.child.wait() => ended,
            reason = given_up => {
                if let Err(error) = process.signal(Signal::KILL) {
                    log::warn!("a runtime that is given up cannot be killed: {error}");
                }
                return Err(Error::Killed { verb, reason });
            }
        };
        if ended.exit.status == 0 {
            return Ok(ended.stdout);
        }
        Err(Error::Runtime {
            verb,
            message: error_message(&self.mark, &ended),
        })
    }
}

/// Waits until a deadline has passed, if there is one.
async fn passed(deadline: Option<Duration>) -> Duration {
    match deadline {
        Some(deadline) => sleep(deadline).await,
        None => pending().await,
    }
    deadline.unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;
    use crate::runtime::programs::STASIS_RUNTIME;

    /// Calls a program of this name that hangs, with a deadline that soon passes. Another process
    /// writes the program: a process that another test starts would inherit a writable descriptor
    /// of ours for a moment, and execve(2) would refuse the program (ETXTBSY).
    fn hanging(directory: &Path, name: &str) -> RunningCall {
        let program = directory.join(name);
        let write = r#"printf '#!/bin/sh\nexec 1>&-\nkill -STOP $$\n' >"$0" && chmod 755 "$0""#;
        let mut command = Command::new("sh");
        let written = command.args(["-c", write]).arg(&program).status();
        assert!(written.unwrap().success());
        let reaper = Arc::new(Reaper::default());
        let log = directory.join("log");
        RuntimeCall::new("pause", Command::new(program), &log, &reaper)
            .within(Duration::from_millis(50))
            .start()
            .unwrap()
    }

    #[tokio::test]
    async fn a_low_level_runtime_that_hangs_is_killed() {
        let directory = tempfile::tempdir().unwrap();
        let call = hanging(directory.path(), "runc");
        let process = call.process().unwrap();
        let error = call.wait().await.unwrap_err();
        assert!(matches!(error, Error::Killed { .. }), "{error}");
        while process.is_low_level() {
            sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn stasis_runtime_is_not_killed_half_way() {
        let directory = tempfile::tempdir().unwrap();
        let call = hanging(directory.path(), STASIS_RUNTIME);
        let process = call.process().unwrap();
        let waited = timeout(Duration::from_secs(1), call.wait()).await;
        assert!(waited.is_err(), "{waited:?}");
        assert!(process.is_stasis_runtime());
        process.signal(Signal::KILL).unwrap();
    }
}
