//! The process that runs a hook, and ends it.
//!
//! The process is the reaper of its descendants (`PR_SET_CHILD_SUBREAPER`), so that a hook that the
//! low-level runtime starts detached becomes its child: a runtime in the foreground would wait
//! until all copies of the hook's output are closed, and so for processes that a hook has left in
//! the container.

use std::io::{self, PipeReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::prctl;
use nix::unistd::getpid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{WaitOptions, WaitStatus, wait};
use serde::{Deserialize, Serialize};
use stasis_host::respawn;
use stasis_linux::exit_status;

use crate::context::RuntimeLocation;
use crate::low_level::command;
use crate::low_level::hook::Unsuccessful;
use crate::low_level::hook::ending::{end, pid_in};

/// The first argument of such a process.
const VERB: &str = "stasis-hook";
/// How many bytes of a hook's output are kept: the end.
const MOST_OUTPUT: usize = 2048;
/// How many pieces are read after its end: other processes may go on to write.
const LAST_PIECES: usize = 64;
/// How often it checks whether the hook has ended.
const TURN: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 10_000_000,
};

/// A hook that is to be run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HookProcess {
    pub(super) place: RuntimeLocation,
    /// The container.
    pub(super) id: String,
    /// The file that describes its process.
    pub(super) process: PathBuf,
    /// The file to which the low-level runtime writes its pid.
    pub(super) pid_file: PathBuf,
    pub(super) timeout: Duration,
}

/// The result of a hook.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answer {
    /// The failure, if it failed.
    pub(super) unsuccessful: Option<Unsuccessful>,
    /// The end of its output.
    pub(super) output: String,
}

impl HookProcess {
    /// Starts the process. It answers on `stream`, and holds `lock` until it ends.
    pub(super) fn start(&self, stream: OwnedFd, lock: OwnedFd) -> io::Result<Child> {
        respawn::start_with(VERB, self, [Stdio::from(stream), Stdio::from(lock)])
    }

    pub(crate) fn of_this_process() -> Option<Self> {
        respawn::job_of(VERB, c"stasis-hook")
    }

    /// Runs the hook, and reports the result.
    pub(crate) fn run(self) -> io::Result<()> {
        prctl::set_child_subreaper(true)?;
        let mut caller = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        let (output, write) = io::pipe()?;
        fcntl_setfl(&output, OFlags::NONBLOCK)?;
        let answer = match self.exec(write) {
            Ok(runtime) => Hooked {
                job: &self,
                runtime,
                is_started: false,
                output: Some(output),
                tail: Vec::new(),
                caller: &caller,
                deadline: Instant::now() + self.timeout,
            }
            .answer()?,
            Err(error) => Answer {
                unsuccessful: Some(Unsuccessful::NotStarted),
                output: error.to_string(),
            },
        };
        caller.write_all(&serde_json::to_vec(&answer)?)
    }

    fn exec(&self, output: io::PipeWriter) -> io::Result<Child> {
        let mut command = command(&self.place.low_level, &["--root"]);
        command.arg(&self.place.root).args(["exec", "--detach"]);
        command.arg("--process").arg(&self.process);
        command.arg("--pid-file").arg(&self.pid_file).arg(&self.id);
        command.stdin(Stdio::null()).stdout(output.try_clone()?);
        command.stderr(output).spawn()
    }
}

/// A running hook.
struct Hooked<'h> {
    job: &'h HookProcess,
    runtime: Child,
    /// Whether the low-level runtime has started it.
    is_started: bool,
    /// `None` once all writers have closed it.
    output: Option<PipeReader>,
    tail: Vec<u8>,
    caller: &'h UnixStream,
    deadline: Instant,
}

impl Hooked<'_> {
    fn answer(mut self) -> io::Result<Answer> {
        let mut unsuccessful = self.until_ended()?;
        match &mut unsuccessful {
            None | Some(Unsuccessful::Exit(_) | Unsuccessful::Signal(_)) => {}
            Some(Unsuccessful::NotStarted) => drop(self.end(None)),
            Some(cut_off) => {
                let left = self.end(pid_in(&self.job.pid_file));
                if let Unsuccessful::Overdue(_, overdue) = cut_off {
                    *overdue = left;
                }
            }
        }
        for _ in 0..LAST_PIECES {
            self.read();
        }
        Ok(Answer {
            unsuccessful,
            output: String::from_utf8_lossy(&self.tail).into_owned(),
        })
    }

    /// Waits for its end; returns the failure, if it failed.
    fn until_ended(&mut self) -> io::Result<Option<Unsuccessful>> {
        loop {
            if self.caller_is_gone()? {
                return Ok(Some(Unsuccessful::Cancelled));
            }
            if Instant::now() > self.deadline {
                return Ok(Some(Unsuccessful::Overdue(self.job.timeout, 0)));
            }
            self.read();
            if !self.is_started {
                match self.runtime.try_wait()? {
                    None => continue,
                    Some(status) if !status.success() => {
                        return Ok(Some(Unsuccessful::NotStarted));
                    }
                    Some(_) => self.is_started = true,
                }
            }
            if let Some(status) = self.reap() {
                return Ok(Unsuccessful::of(status));
            }
        }
    }

    /// Waits a while for an event; returns whether the caller has asked for the end, or has ended.
    fn caller_is_gone(&self) -> io::Result<bool> {
        let mut files = vec![PollFd::new(self.caller, PollFlags::IN)];
        files.extend(self.output.iter().map(|it| PollFd::new(it, PollFlags::IN)));
        match poll(&mut files, Some(&TURN)) {
            Ok(_) => Ok(!files[0].revents().is_empty()),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads available output, and keeps the end of it.
    fn read(&mut self) {
        let mut piece = [0; 16 << 10];
        let read = self.output.as_mut().map(|output| output.read(&mut piece));
        match read {
            Some(Ok(0)) => self.output = None,
            Some(Ok(length)) => {
                self.tail.extend_from_slice(&piece[..length]);
                let rest = self.tail.len().saturating_sub(MOST_OUTPUT);
                self.tail.drain(..rest);
            }
            // No output is available now.
            Some(Err(_)) | None => {}
        }
    }

    /// Returns how the hook ended, if it has. Other reaped children do not matter.
    fn reap(&self) -> Option<WaitStatus> {
        let hook = pid_in(&self.job.pid_file)?;
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if pid.as_raw_nonzero().get() == hook {
                return Some(status);
            }
        }
        None
    }

    /// Ends all of it: our children, to which the low-level runtime's are reparented, and the
    /// hook's session, some of which may be children of the container's first process. No child is
    /// reaped meanwhile, so the session's number is not reused.
    fn end(&mut self, hook: Option<i32>) -> usize {
        let us = getpid().as_raw();
        let _ = self.runtime.kill();
        let _ = self.runtime.wait();
        end(|stat| stat.parent == us || hook.is_some_and(|hook| stat.session == hook))
    }
}

impl Unsuccessful {
    fn of(status: WaitStatus) -> Option<Self> {
        use std::os::unix::process::ExitStatusExt;
        let status = ExitStatus::from_raw(status.as_raw());
        match (status.signal(), exit_status::code(status)) {
            (Some(signal), _) => Some(Self::Signal(signal)),
            (None, 0) => None,
            (None, code) => Some(Self::Exit(code)),
        }
    }
}
