//! A hook of a container (`container/hooks.rs`), run in it by the low-level runtime's `exec`: with
//! the user, environment, capabilities and limits of the container's first process, in its cgroup
//! and behind its seccomp filter.
//!
//! A separate process runs it ([`process`]). It ends the hook with everything of its session at the
//! deadline, and also when the operation that asked for it has ended; until it is done it holds the
//! lock of the operation's children, so a rollback of a killed operation waits for that.

mod ending;
pub(crate) mod pending;
pub mod process;

use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stasis_host::cancel::Cancel;
use stasis_host::json_record;
use stasis_linux::error_chain;
use stasis_linux::escape::escaped;

use crate::container::Container;
use crate::container::hooks::Hook;
use crate::context::RuntimeLocation;
use crate::low_level::hook::process::{Answer, HookProcess};
use crate::operation::Operation;

/// The description of the hook's process, in the operation's directory.
const PROCESS: &str = "hook-process.json";
/// The pid of its process.
const PID: &str = "hook.pid";
/// How often pending signals are checked.
const POLL: Duration = Duration::from_millis(100);
/// How long ending a hook may take beyond its deadline.
const ENDING: Duration = Duration::from_secs(20);
/// More than the size of an answer, in bytes.
const MOST_ANSWER: u64 = 64 << 10;

/// A hook that did not succeed.
#[derive(Debug, thiserror::Error)]
#[error("the {hook} of the container {what}{}", said_after("; ", .said))]
pub struct HookError {
    hook: String,
    /// The outcome.
    pub what: Unsuccessful,
    /// The end of its output, escaped for display.
    said: String,
}

/// The outcome of a hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unsuccessful {
    /// The low-level runtime has not started it.
    NotStarted,
    /// It ended with this code.
    Exit(u8),
    /// This signal ended it.
    Signal(i32),
    /// It was ended at its deadline; so many of its processes still have not ended.
    Overdue(Duration, usize),
    /// It was ended because a signal asked the operation to end.
    Cancelled,
    /// The process that ran it was killed.
    Unwatched,
    /// It was not run, for this reason.
    NotRun(String),
    /// No process of the container uses CUDA after it.
    NoCudaLeft,
}

/// A hook that is run in a container.
pub(crate) struct Run<'a> {
    pub(crate) place: &'a RuntimeLocation,
    pub(crate) operation: &'a Operation,
    pub(crate) container: &'a Container,
    pub(crate) hook: &'a Hook,
}

impl Run<'_> {
    /// Runs the hook until its end or its deadline; then none of its processes runs on, except
    /// those that have left its session. Returns a note of its output, if there is any.
    pub(crate) fn run(&self, cancel: &Cancel) -> Result<Option<String>, HookError> {
        let directory = self.operation.directory();
        let (process, pid) = (directory.join(PROCESS), directory.join(PID));
        let answer = self.answer(&process, &pid, cancel);
        for file in [&process, &pid] {
            // If this fails, they go with the operation's directory.
            let _ = fs::remove_file(file);
        }
        let answer = match answer {
            Ok(Some(answer)) => answer,
            Ok(None) => return Err(self.unsuccessful(Unsuccessful::Unwatched, "")),
            Err(error) => {
                return Err(self.unsuccessful(Unsuccessful::NotRun(error.to_string()), ""));
            }
        };
        let said = escaped(answer.output.trim().as_bytes());
        match answer.unsuccessful {
            None if said.is_empty() => Ok(None),
            None => Ok(Some(format!(
                "the {} hook{}",
                self.hook.when,
                said_after(" ", &said)
            ))),
            Some(what) => Err(self.unsuccessful(what, &said)),
        }
    }

    /// Returns the answer; `None` if the running process ended without one.
    fn answer(&self, process: &Path, pid: &Path, cancel: &Cancel) -> io::Result<Option<Answer>> {
        json_record::write(process, &self.process()?)?;
        let _ = fs::remove_file(pid);
        let (ours, theirs) = UnixStream::pair()?;
        let job = HookProcess {
            place: self.place.clone(),
            id: self.container.id().to_owned(),
            process: process.to_owned(),
            pid_file: pid.to_owned(),
            timeout: self.hook.timeout,
        };
        let lock = self.operation.children_lock();
        let lock = lock.map_err(|error| io::Error::other(error_chain(&error)))?;
        let mut runner = job.start(OwnedFd::from(theirs), lock)?;
        let text = self.read(ours, cancel)?;
        if text.is_none() {
            // Another process has stopped it.
            let _ = runner.kill();
        }
        let _ = runner.wait();
        let answer = text.and_then(|text| serde_json::from_slice(&text).ok());
        if answer.is_none() {
            ending::end_left(pid, self.container);
        }
        Ok(answer)
    }

    /// Reads the answer; `None` if that takes too long.
    fn read(&self, mut stream: UnixStream, cancel: &Cancel) -> io::Result<Option<Vec<u8>>> {
        let deadline = Instant::now() + self.hook.timeout + ENDING;
        stream.set_read_timeout(Some(POLL))?;
        let (mut text, mut piece) = (Vec::new(), [0; 4096]);
        let mut asked_to_end = false;
        while (text.len() as u64) < MOST_ANSWER {
            match stream.read(&mut piece) {
                Ok(0) => break,
                Ok(length) => text.extend_from_slice(&piece[..length]),
                Err(error) if is_for_later(&error) => {}
                // The process has ended with unread data from us.
                Err(_) => break,
            }
            if cancel.requested() && !asked_to_end {
                stream.shutdown(Shutdown::Write)?;
                asked_to_end = true;
            }
            if Instant::now() > deadline {
                return Ok(None);
            }
        }
        Ok(Some(text))
    }

    /// The container's first process, with the hook's command.
    fn process(&self) -> io::Result<Value> {
        let spec = self.container.spec();
        let process = spec.and_then(|spec| spec.tree().get("process").cloned());
        let mut process = process.filter(Value::is_object).ok_or_else(|| {
            let text = "the process in the container's config.json cannot be read";
            io::Error::new(io::ErrorKind::InvalidData, text)
        })?;
        process["args"] = json!(self.hook.command);
        process["terminal"] = json!(false);
        if let Some(process) = process.as_object_mut() {
            // `consoleSize` is for terminals; `commandLine` is for Windows.
            process.remove("consoleSize");
            process.remove("commandLine");
        }
        Ok(process)
    }

    /// Makes the error.
    pub(crate) fn unsuccessful(&self, what: Unsuccessful, said: &str) -> HookError {
        HookError {
            hook: self.hook.to_string(),
            what,
            said: said.to_owned(),
        }
    }
}

fn is_for_later(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

fn said_after(before: &str, said: &str) -> String {
    match said {
        "" => String::new(),
        said => format!("{before}said \"{said}\""),
    }
}

impl fmt::Display for Unsuccessful {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted => f.write_str("could not be started"),
            Self::Exit(code) => write!(f, "ended with exit code {code}"),
            Self::Signal(signal) => write!(f, "was ended by signal {signal}"),
            Self::Overdue(timeout, left) => {
                let seconds = timeout.as_secs();
                write!(f, "had not ended after {seconds} s, and was ended")?;
                match left {
                    0 => Ok(()),
                    left => write!(f, " ({left} of its processes have not ended yet)"),
                }
            }
            Self::Cancelled => f.write_str("was ended, since a signal asked for that"),
            Self::Unwatched => {
                f.write_str("was ended, since the process of stasis that ran it was killed")
            }
            Self::NotRun(reason) => write!(f, "was not run: {reason}"),
            Self::NoCudaLeft => f.write_str(
                "left no process that uses CUDA; if there is still none, the next checkpoint needs \
                 no hook",
            ),
        }
    }
}
