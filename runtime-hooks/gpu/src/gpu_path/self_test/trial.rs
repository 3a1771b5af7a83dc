//! Checkpoints and restores of the process that is tried.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::Duration;

use nix::sys::stat::{major, minor};
use rustix::fs::{FallocateFlags, fallocate};
use stasis_injection::slots::{self, BuildId, Refusal};
use stasis_injection::{
    Armed, InjectionError, PutBack, Returned, Span, Transfer, prepare, worker_count,
};
use stasis_linux::ProcessRef;
use stasis_linux::memory_file;
use stasis_linux::procfs::{children, for_each_mapping};

use super::pattern::{self, BYTES};
use super::pieces::copy_pieces;
use super::subject::{NoAnswer, NotStarted, Subject};
use crate::cuda::{CudaError, Driver, GpuMap};
use crate::gpu_path::survey::survey_own;

/// Room for the contents: more than any driver adds of its own (driver 580: 0.6 GiB for a context
/// on an H200). Pages that are not written take no memory.
const MOST: u64 = 8 << 30;
/// The most time that the lock may wait for work of the process; it has none.
const LOCK: Duration = Duration::from_secs(5);

/// The copying side of a round, out and back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Round {
    DriverAlone,
    Ours,
    /// As where no process of ours is left that could copy back.
    OursAndBackByDriver,
    /// From a file that is loaded while the driver copies.
    OursWhileLoading,
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DriverAlone => "copied by the driver afterwards",
            Self::Ours => "copied by our threads",
            Self::OursAndBackByDriver => "copied out by our threads, and back by the driver",
            Self::OursWhileLoading => "copied by our threads while they were loaded",
        })
    }
}

/// A failure of a round.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Failure {
    #[error("the driver's {0}")]
    Driver(&'static str, #[source] CudaError),
    /// libcuda differs from what the code expects.
    #[error("libcuda's calls cannot be led to our code")]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Injection(#[from] InjectionError),
    #[error(
        "libcuda does not copy by the calls that are known: our code has answered {answered} of \
         its mappings, and copied {copied} bytes"
    )]
    NotUsed { answered: u32, copied: u64 },
    /// The driver's mapping is larger than the expected most.
    #[error("libcuda asked for a mapping of {0} bytes")]
    TooLarge(u64),
    #[error("{0} is left in its process")]
    Left(&'static str),
    #[error("{0} words of GPU memory are not in the file")]
    Missing(u64),
    #[error("{0} words of GPU memory are wrong afterwards")]
    Wrong(u64),
    #[error("the memory of its process is not among what the driver's checkpoint thread has found")]
    NotSeen,
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
    #[error("it was not done after {} s", .0.as_secs())]
    Overdue(Duration),
    #[error("it cannot be looked at")]
    Io(#[from] io::Error),
}

/// One process, which is checkpointed and restored again and again.
pub(super) struct Trial<'a> {
    driver: &'a dyn Driver,
    subject: Subject,
    process: ProcessRef,
    /// Address of its GPU memory.
    address: u64,
}

impl<'a> Trial<'a> {
    /// Waits until the process is ready.
    pub(super) fn begin(driver: &'a dyn Driver, mut subject: Subject) -> Result<Self, NotStarted> {
        let address = subject.ready()?;
        Ok(Self {
            driver,
            process: subject.process().clone(),
            subject,
            address,
        })
    }

    /// The build of libcuda that is tried.
    pub(super) fn build_id(&self) -> Result<BuildId, Refusal> {
        slots::build_id(&self.process)
    }

    /// Moves GPU contents to host memory, and back.
    ///
    /// # Errors
    /// [`Failure`]; the process is of no use then.
    pub(super) fn carry_out(&mut self, round: Round) -> Result<(), Failure> {
        let locked = self.driver.lock(&self.process, LOCK);
        locked.map_err(|error| Failure::Driver("lock", error))?;
        match round {
            Round::DriverAlone => {
                self.checkpoint()?;
                self.restore()?;
            }
            Round::Ours => self.through_a_file(Self::restore_by_us)?,
            Round::OursAndBackByDriver => self.through_a_file(|trial, _, _| trial.restore())?,
            Round::OursWhileLoading => self.through_a_file(Self::restore_while_loading)?,
        }
        self.unlock_and_check()
    }

    /// Unlocks the process, and has it check its memory.
    fn unlock_and_check(&mut self) -> Result<(), Failure> {
        let unlocked = self.driver.unlock(&self.process);
        unlocked.map_err(|error| Failure::Driver("unlock", error))?;
        match self.subject.wrong_words()? {
            0 => Ok(()),
            wrong => Err(Failure::Wrong(wrong)),
        }
    }

    /// Asks the checkpoint thread for the process's memory; then makes a round of the driver's.
    ///
    /// # Errors
    /// [`Failure`]; the process is of no use then.
    pub(super) fn survey(&mut self) -> Result<(), Failure> {
        let locked = self.driver.lock(&self.process, LOCK);
        locked.map_err(|error| Failure::Driver("lock", error))?;
        let state = self.driver.state(&self.process);
        state.map_err(|error| Failure::Driver("state", error))?;
        let thread = self.driver.restore_thread(&self.process);
        let thread = thread.map_err(|error| Failure::Driver("checkpoint thread", error))?;
        let held = survey_own(&self.process, thread)?;
        if held.reachable_by_peers.largest < BYTES || held.contexts != 1 {
            return Err(Failure::NotSeen);
        }
        self.checkpoint()?;
        self.restore()?;
        self.unlock_and_check()
    }

    fn checkpoint(&self) -> Result<(), Failure> {
        let done = self.driver.checkpoint(&self.process);
        done.map_err(|error| Failure::Driver("checkpoint", error))
    }

    fn restore(&self) -> Result<(), Failure> {
        let done = self.driver.restore(&self.process, &GpuMap::default());
        done.map_err(|error| Failure::Driver("restore", error))
    }

    fn restore_by_us(&self, _: &File, contents: Span) -> Result<(), Failure> {
        let returned = self.by_us(Transfer::In { contents }, |_| self.restore())?;
        used(&returned)
    }

    /// Restores from a file that is empty when the driver is called: bytes that libcuda reads by
    /// other than the expected calls are lost.
    fn restore_while_loading(&self, file: &File, contents: Span) -> Result<(), Failure> {
        let stored = memory_file::create(contents.length)?;
        copy_pieces(file, &stored, contents.length, |_| Ok(()))?;
        let empty = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(file, empty, 0, contents.length).map_err(io::Error::from)?;
        let returned = self.by_us(Transfer::Arriving { contents }, |armed| {
            thread::scope(|scope| {
                let loads = scope.spawn(|| {
                    let loaded = |end| armed.loaded(contents.length - end);
                    let copied = copy_pieces(&stored, file, contents.length, loaded);
                    // No thread is to wait for bytes that do not come.
                    copied.or_else(|error| armed.loaded(0).and(Err(error)))
                });
                let restored = self.restore();
                loads
                    .join()
                    .unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))?;
                restored
            })
        })?;
        used(&returned)
    }

    /// Copies out by our threads, into a file that then is the only copy of the contents.
    fn through_a_file(
        &self,
        back: impl FnOnce(&Self, &File, Span) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let file = memory_file::create(MOST)?;
        let transfer = Transfer::Out {
            file: file.try_clone()?,
            offset: 0,
            length: MOST,
        };
        let returned = self.by_us(transfer, |_| self.checkpoint())?;
        used(&returned)?;
        let contents = returned.contents.ok_or_else(|| not_used(&returned))?;
        match pattern::missing(&file, contents.length, self.address)? {
            0 => {}
            missing => return Err(Failure::Missing(missing)),
        }
        back(self, &file, contents)?;
        self.has_nothing_of(&file)
    }

    fn by_us(
        &self,
        transfer: Transfer,
        call: impl FnOnce(&Armed) -> Result<(), Failure>,
    ) -> Result<Returned, Failure> {
        let slots = slots::inspect(&self.process)?;
        let workers = worker_count(&self.process);
        let armed = prepare(&self.process, slots, transfer, workers)?.arm()?;
        let called = call(&armed);
        let reported = armed.reported();
        let put_back = armed.disarm()?;
        if let Some(length) = reported.ok().and_then(|reported| reported.unanswered) {
            return Err(Failure::TooLarge(length));
        }
        called?;
        match put_back {
            PutBack::Returned(returned) => Ok(returned),
            PutBack::CodeLeft(_) => Err(Failure::Left("code of ours")),
            PutBack::NothingThere | PutBack::Ended => Err(Failure::Refused(Refusal::Ended)),
        }
    }

    /// Checks that the driver has unmapped the file itself, and that nothing of ours is left.
    fn has_nothing_of(&self, file: &File) -> Result<(), Failure> {
        let pid = self.process.pid();
        // Slots that do not lead into libraries are refused.
        slots::inspect(&self.process)?;
        if !children(pid).is_empty() {
            return Err(Failure::Left("a thread of ours"));
        }
        let metadata = file.metadata()?;
        let (major, minor) = (major(metadata.dev()), minor(metadata.dev()));
        let device = format!("{major:02x}:{minor:02x}").into_bytes();
        let mapped = for_each_mapping(pid, |mapping| {
            match mapping.inode == metadata.ino() && mapping.device == device {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        mapped.map_or(Ok(()), |()| Err(Failure::Left("a mapping of the file")))
    }
}

fn used(returned: &Returned) -> Result<(), Failure> {
    match returned.reported.copied >= BYTES {
        true => Ok(()),
        false => Err(not_used(returned)),
    }
}

fn not_used(returned: &Returned) -> Failure {
    let reported = returned.reported;
    Failure::NotUsed {
        answered: reported.answered.is_some().into(),
        copied: reported.copied,
    }
}
