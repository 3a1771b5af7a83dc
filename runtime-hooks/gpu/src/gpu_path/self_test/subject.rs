//! The tester's end of the process that is tried.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, ExitStatus, Stdio};

use stasis_host::respawn;
use stasis_linux::ProcessRef;

use super::process::{Said, SelfTest, VERB};
use crate::cuda::GpuUuid;

/// The most bytes of a line of the process.
const MAX_LINE: u64 = 64 << 10;

/// The process that is tried, until this is dropped.
#[derive(Debug)]
pub(super) struct Subject {
    child: Child,
    process: ProcessRef,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// Why the process is not ready.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum NotStarted {
    #[error("it cannot be started")]
    Spawn(#[source] io::Error),
    #[error("{0}")]
    Failed(String),
    #[error(transparent)]
    Silent(#[from] NoAnswer),
}

/// Why an answer is missing.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum NoAnswer {
    /// The process has ended, by the driver or our code alone.
    #[error("its process has ended ({0})")]
    Ended(ExitStatus),
    #[error("its process cannot read its GPU memory: {0}")]
    Failed(String),
    #[error("its process said something else: {0}")]
    Unexpected(String),
    #[error("its process cannot be asked")]
    Pipe(#[from] io::Error),
}

impl Subject {
    /// Starts the process. It has no GPU memory before [`Self::ready`].
    pub(super) fn start(libcuda: Option<PathBuf>, gpu: GpuUuid) -> Result<Self, NotStarted> {
        let job = SelfTest { libcuda, gpu };
        let streams = [Stdio::piped(), Stdio::piped()];
        let mut child = respawn::start_apart(VERB, &job, streams).map_err(NotStarted::Spawn)?;
        let (process, pipes) = (
            process_of(&child),
            (child.stdin.take(), child.stdout.take()),
        );
        match (process, pipes) {
            (Ok(process), (Some(input), Some(output))) => Ok(Self {
                child,
                process,
                input,
                output: BufReader::new(output),
            }),
            (process, _) => {
                end(&mut child);
                let error = process.err();
                Err(NotStarted::Spawn(
                    error.unwrap_or_else(|| io::ErrorKind::BrokenPipe.into()),
                ))
            }
        }
    }

    pub(super) fn process(&self) -> &ProcessRef {
        &self.process
    }

    /// Waits until the process has filled its GPU memory; returns the memory's address.
    pub(super) fn ready(&mut self) -> Result<u64, NotStarted> {
        match self.answer()? {
            Said::Ready { address } => Ok(address),
            Said::Failed { why } => Err(NotStarted::Failed(why)),
            other => Err(NoAnswer::Unexpected(format!("{other:?}")).into()),
        }
    }

    /// Returns how many words of its GPU memory are wrong.
    pub(super) fn wrong_words(&mut self) -> Result<u64, NoAnswer> {
        self.input.write_all(b"check\n")?;
        match self.answer()? {
            Said::Wrong { words } => Ok(words),
            Said::Failed { why } => Err(NoAnswer::Failed(why)),
            other => Err(NoAnswer::Unexpected(format!("{other:?}"))),
        }
    }

    fn answer(&mut self) -> Result<Said, NoAnswer> {
        let mut line = String::new();
        let read = (&mut self.output).take(MAX_LINE).read_line(&mut line)?;
        if read == 0 {
            return Err(NoAnswer::Ended(self.child.wait()?));
        }
        serde_json::from_str(&line).map_err(|_| NoAnswer::Unexpected(line))
    }
}

fn process_of(child: &Child) -> io::Result<ProcessRef> {
    ProcessRef::of_child(child)?.ok_or_else(|| io::Error::other("it has ended at once"))
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

impl Drop for Subject {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}
