//! The operation's end of a process that copies ([`super::process`]).

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;
use stasis_host::respawn;

use super::steps::Answer;

/// Far more than an answer has: one answer has all that the ranks of a job share.
const MAX_ANSWER: usize = 64 << 20;
/// Bytes that are read at a time.
const PIECE: usize = 64 << 10;
/// The most time for a process to end, which has nothing to wait for.
const AT_END: Duration = Duration::from_secs(2);
/// The most time for a request to a locked process, which is waited for before others use it: an
/// answer of the driver's thread takes 10 s at most, and the thread is waited for 5 s before.
const REQUEST: Duration = Duration::from_secs(16);
/// Time between two looks: a signal may have come to another thread than the waiting one.
const LOOK: Duration = Duration::from_millis(100);

/// Why there is no answer, where the operation may be cancelled meanwhile.
#[derive(Debug)]
pub enum Unanswered {
    /// The operation is to end. The asked process continues.
    Cancelled,
    /// The process failed, has ended, or does not answer.
    Failed(io::Error),
}

/// A process that copies. It puts everything back and ends when this is dropped.
#[derive(Debug)]
pub(super) struct Copier {
    process: Child,
    steps: Option<PipeWriter>,
    answers: PipeReader,
    /// Bytes that were read behind an answer.
    rest: Vec<u8>,
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
            rest: Vec::new(),
        })
    }

    /// Has the process do a step. Returns its result.
    ///
    /// # Errors
    /// The process failed, has ended, or does not answer within `limit`.
    pub(super) fn step<T: DeserializeOwned>(
        &mut self,
        step: impl Serialize,
        limit: Duration,
    ) -> io::Result<T> {
        self.ask(step)?;
        self.answer(limit)
    }

    /// Does the same, until the operation is cancelled.
    pub(super) fn step_unless<T: DeserializeOwned>(
        &mut self,
        is_cancelled: impl Fn() -> bool,
        step: impl Serialize,
        limit: Duration,
    ) -> Result<T, Unanswered> {
        self.ask(step)?;
        self.answer_unless(is_cancelled, limit)
    }

    /// Asks for a step that has no answer, unless that would have to wait: the same can be sent
    /// later.
    pub(super) fn tell(&mut self, step: impl Serialize) {
        let Some(steps) = &self.steps else {
            return;
        };
        let mut descriptors = [PollFd::new(steps, PollFlags::OUT)];
        // A pipe that can be written to takes a short line at once: pipe(7), PIPE_BUF.
        let has_room = poll(&mut descriptors, Some(&Timespec::default()));
        if matches!(has_room, Ok(1)) {
            let _ = self.ask(step);
        }
    }

    fn ask(&mut self, step: impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(&step)?;
        line.push(b'\n');
        let steps = self.steps.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        match steps.write_all(&line) {
            // Its answers before its end, or their absence, say more.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => written,
        }
    }

    /// Waits for the answer to a step, or of a process that does all its work without being asked
    /// for steps.
    pub(super) fn answer<T: DeserializeOwned>(&mut self, limit: Duration) -> io::Result<T> {
        let line = self.line(limit, || false)?;
        read(&line.unwrap_or_default())
    }

    /// As [`Self::answer`], of work on locked processes. If there is no answer, the process begins
    /// no other request, and has ended the last one when this returns.
    pub(super) fn answer_or_end<T: DeserializeOwned>(mut self, limit: Duration) -> io::Result<T> {
        let answer = self.answer(limit);
        if answer.is_err() {
            self.steps = None;
            let _ = self.line(REQUEST, || false);
        }
        answer
    }

    /// Does the same, until the operation is cancelled.
    pub(super) fn answer_unless<T: DeserializeOwned>(
        &mut self,
        is_cancelled: impl Fn() -> bool,
        limit: Duration,
    ) -> Result<T, Unanswered> {
        match self.line(limit, is_cancelled)? {
            Some(line) => Ok(read(&line)?),
            None => Err(Unanswered::Cancelled),
        }
    }

    /// Lets the process end by itself, and does not wait for that.
    pub(super) fn leave(&mut self) {
        self.steps = None;
    }

    /// Ends a process that works in no program.
    pub(super) fn kill(&mut self) {
        self.steps = None;
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Reads a line, an empty one at its end; none if the operation is cancelled before.
    fn line(
        &mut self,
        limit: Duration,
        is_cancelled: impl Fn() -> bool,
    ) -> io::Result<Option<Vec<u8>>> {
        let began = Instant::now();
        let (mut line, mut piece) = (std::mem::take(&mut self.rest), vec![0; PIECE]);
        loop {
            if let Some(end) = line.iter().position(|byte| *byte == b'\n') {
                self.rest = line.split_off(end + 1);
                return Ok(Some(line));
            }
            if is_cancelled() {
                self.rest = line;
                return Ok(None);
            }
            let left = limit.saturating_sub(began.elapsed());
            if !self.has_more(left.min(LOOK))? {
                if left.is_zero() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                continue;
            }
            match self.answers.read(&mut piece)? {
                0 => return Ok(Some(line)),
                _ if line.len() > MAX_ANSWER => return Err(io::ErrorKind::FileTooLarge.into()),
                read => line.extend_from_slice(&piece[..read]),
            }
        }
    }

    /// Whether something can be read, or the end.
    fn has_more(&self, within: Duration) -> io::Result<bool> {
        let within = Timespec::try_from(within).map_err(io::Error::other)?;
        let mut descriptors = [PollFd::new(&self.answers, PollFlags::IN)];
        match poll(&mut descriptors, Some(&within)) {
            Ok(ready) => Ok(ready > 0),
            // A signal only asks for the operation's end, and poll(2) is never restarted after one.
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

fn read<T: DeserializeOwned>(line: &[u8]) -> io::Result<T> {
    if line.is_empty() {
        let ended = "the process that was to do so has ended, or was killed";
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, ended));
    }
    match serde_json::from_slice(line)? {
        Answer::Done(given) => Ok(given),
        Answer::Failed(fault) => Err(fault.into()),
    }
}

impl From<io::Error> for Unanswered {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl Drop for Copier {
    /// Kills no process that is late: it may be inside of a program, and ends when it can.
    fn drop(&mut self) {
        if self.steps.take().is_none() {
            return;
        }
        let ended = self.line(AT_END, || false);
        if ended.is_ok_and(|line| line.is_some_and(|line| line.is_empty())) {
            let _ = self.process.wait();
        }
    }
}
