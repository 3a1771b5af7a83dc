//! One call of a runtime: its command line, its end, and what it complained about.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crate::command::{Finished, Running, first_line, start, start_captured};
use crate::oci_runtime::RuntimeError;
use crate::reaper::Reaper;
use crate::runtime_log::{self, Complaint, Mark};
use crate::stdio::Streams;

/// A runtime that is about to be called.
#[derive(Debug)]
pub(crate) struct Call<'r> {
    verb: &'static str,
    command: Command,
    log: &'r Path,
    reaper: &'r Arc<Reaper>,
}

/// A runtime that works on something.
#[derive(Debug)]
pub(crate) struct Begun {
    verb: &'static str,
    running: Running,
    mark: Mark,
}

/// How a runtime is started: with the streams that its command has, or with its output kept.
type Start = fn(&Arc<Reaper>, Command) -> io::Result<Running>;

impl<'r> Call<'r> {
    /// A call for `verb`, with the arguments so far in `command`; `log` is where the runtime was
    /// told to log.
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
        }
    }

    /// With another argument.
    pub(crate) fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    /// With an option that has a value.
    pub(crate) fn option(self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.arg(name).arg(value)
    }

    /// With an option that has a value, if there is one.
    pub(crate) fn option_if<V: AsRef<OsStr>>(self, name: &str, value: Option<V>) -> Self {
        match value {
            Some(value) => self.option(name, value),
            None => self,
        }
    }

    /// With a switch, if it is set.
    pub(crate) fn switch(self, name: &str, set: bool) -> Self {
        if set { self.arg(name) } else { self }
    }

    /// Runs it to its end.
    pub(crate) async fn run(self) -> Result<(), RuntimeError> {
        self.output().await.map(drop)
    }

    /// Runs it to its end; what it wrote to standard output.
    pub(crate) async fn output(self) -> Result<Vec<u8>, RuntimeError> {
        self.begin().map(Begun::finish)?.await
    }

    /// Runs it to its end; the container gets the streams.
    pub(crate) async fn run_with(self, streams: Streams) -> Result<(), RuntimeError> {
        self.begin_with(streams).map(Begun::finish)?.await.map(drop)
    }

    /// Starts it.
    pub(crate) fn begin(self) -> Result<Begun, RuntimeError> {
        self.start(start_captured)
    }

    /// Starts it; the container gets the streams.
    pub(crate) fn begin_with(mut self, streams: Streams) -> Result<Begun, RuntimeError> {
        streams.give_to(&mut self.command);
        self.start(start)
    }

    fn start(self, start: Start) -> Result<Begun, RuntimeError> {
        let program = PathBuf::from(self.command.get_program());
        let mark = Mark::at_end_of(self.log);
        let running = start(self.reaper, self.command)
            .map_err(|source| RuntimeError::Start { program, source })?;
        Ok(Begun {
            verb: self.verb,
            running,
            mark,
        })
    }
}

impl Begun {
    /// Its pid.
    pub(crate) fn pid(&self) -> u32 {
        self.running.pid
    }

    /// Waits for its end; gives its output.
    pub(crate) async fn finish(self) -> Result<Vec<u8>, RuntimeError> {
        let finished = self.running.finish().await;
        if finished.exit.status == 0 {
            return Ok(finished.output);
        }
        Err(RuntimeError::Failed {
            verb: self.verb,
            complaint: complaint(&self.mark, &finished),
        })
    }
}

fn complaint(mark: &Mark, finished: &Finished) -> Complaint {
    runtime_log::last_error(mark)
        .or_else(|| first_line(&finished.errors).map(Complaint::new))
        .unwrap_or_else(|| {
            let status = finished.exit.status;
            Complaint::new(format!("exit status {status}, without a word"))
        })
}
