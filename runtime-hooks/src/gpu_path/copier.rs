//! The operation's end of a process that copies ([`super::process`]).

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::steps::Answer;
use crate::host::respawn;

/// Far more than an answer has.
const MAX_ANSWER: usize = 64 << 10;
/// One that ends has nothing to wait for.
const AT_END: Duration = Duration::from_secs(2);

/// A process that copies. It puts everything back and ends when this is dropped.
#[derive(Debug)]
pub(super) struct Copier {
    process: Child,
    steps: Option<PipeWriter>,
    answers: PipeReader,
}

impl Copier {
    /// Starts this program as `verb`.
    pub(super) fn start(verb: &str, job: &impl Serialize) -> io::Result<Self> {
        let (input, steps) = io::pipe()?;
        let (answers, output) = io::pipe()?;
        let process = respawn::start_with(verb, job, [input.into(), output.into()])?;
        Ok(Self {
            process,
            steps: Some(steps),
            answers,
        })
    }

    /// Has it do a step. Returns what that has given.
    ///
    /// # Errors
    /// It failed, has ended, or does not answer within `limit`.
    pub(super) fn step<T: DeserializeOwned>(
        &mut self,
        step: impl Serialize,
        limit: Duration,
    ) -> io::Result<T> {
        let mut line = serde_json::to_vec(&step)?;
        line.push(b'\n');
        let steps = self.steps.as_mut();
        steps.ok_or(io::ErrorKind::BrokenPipe)?.write_all(&line)?;
        self.answer(limit)
    }

    /// Waits for the answer to a step, or of one that does all that it has to do without being
    /// asked for steps.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub(super) fn answer<T: DeserializeOwned>(&mut self, limit: Duration) -> io::Result<T> {
        match serde_json::from_slice(&self.line(limit)?)? {
            Answer::Done(given) => Ok(given),
            Answer::Failed(fault) => Err(fault.into()),
        }
    }

    /// Lets it end by itself, and does not wait for that.
    pub(super) fn leave(&mut self) {
        self.steps = None;
    }

    /// Ends one that is in no program.
    pub(super) fn kill(&mut self) {
        self.steps = None;
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// A line of it; none at its end.
    fn line(&mut self, limit: Duration) -> io::Result<Vec<u8>> {
        let began = Instant::now();
        let mut line = Vec::new();
        while line.len() < MAX_ANSWER && line.last() != Some(&b'\n') {
            let left = limit.saturating_sub(began.elapsed());
            let left = Timespec::try_from(left).map_err(io::Error::other)?;
            let mut descriptors = [PollFd::new(&self.answers, PollFlags::IN)];
            if poll(&mut descriptors, Some(&left))? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let mut byte = [0];
            match self.answers.read(&mut byte)? {
                0 => break,
                _ => line.push(byte[0]),
            }
        }
        Ok(line)
    }
}

impl Drop for Copier {
    /// One that does not end is not killed: it may be inside of a program, and ends when it can.
    fn drop(&mut self) {
        if self.steps.take().is_none() {
            return;
        }
        let ended = self.line(AT_END);
        if ended.is_ok_and(|line| line.is_empty()) {
            let _ = self.process.wait();
        }
    }
}
