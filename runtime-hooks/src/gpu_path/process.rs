//! The process that copies the GPU contents of one process.
//!
//! Whoever has a thread of a program make a call and is killed meanwhile loses that program, if it
//! has no way back (`remote-call`). Callers kill operations, so this is a process of its own. It is
//! in stasis' own cgroup, which so is charged for the contents: the kernel charges a page of a file
//! in memory to who touches it first.

use std::io;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, available_parallelism, sleep};
use std::time::Duration;

use nix::unistd::{SysconfVar, sysconf};
use serde::{Deserialize, Serialize};
use stasis_injection::{Armed, Span, Transfer, contents_of, slots, worker_count};
use stasis_linux::ProcessRef;
use stasis_linux::numa::NumaNode;
use stasis_memory_store::EarlyChecksums;

use super::armed::{arm, disarm};
use super::imports::{GiveUp, ShareAgain};
use super::memory_of::{make_private, make_readable};
use super::new_file::{Made, NewFile};
use super::records::{HeldRecord, has_record, put_back_all};
use super::share::Share;
use super::steps::{asked, next, said, say_result};
use super::survey::Survey;
use crate::cuda::process_set::as_found::ProcessId;
use crate::host::respawn;

/// The first argument of such a process.
pub(super) const VERB: &str = "stasis-gpu-copy";
/// How long it waits after the end of its operation before it puts anything back. Who kills one of
/// our processes often kills all, one after the other, and one that is killed while the program
/// makes a call for it may lose the program: not every thread has a way back (`remote-call`).
const KILLER_IS_DONE: Duration = Duration::from_millis(500);
/// One of so many threads takes checksums behind those that copy, of which each is as fast.
const BEHIND_ONE_OF: usize = 4;
const NO_CONTENTS: &str = "its GPU contents are not in one file of ours";

/// What it is to do.
#[derive(Debug, Serialize, Deserialize)]
pub enum GpuCopy {
    /// Takes part in one call of the driver.
    Take(Part),
    /// Puts back what such processes have left that were killed: their records are here.
    PutBack(PathBuf),
    /// Makes the contents of these processes ordinary memory of theirs.
    MakePrivate(Vec<ProcessId>),
    /// Lets a checkpointed process read where devices were mapped.
    MakeReadable(ProcessId, Vec<Span>),
    /// Asks locked processes which GPU memory they have, and share.
    Survey(Survey),
    /// Has them give up what they have imported of each other.
    GiveUp(GiveUp),
    /// Has them share it again.
    ShareAgain(ShareAgain),
}

/// One call of the driver.
#[derive(Debug, Serialize, Deserialize)]
pub struct Part {
    pub(super) process: ProcessId,
    pub(super) direction: Direction,
    /// Its part of the CPUs.
    pub(super) share: Share,
    /// The directory of the records.
    pub(super) records: PathBuf,
}

/// Where the contents go.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Direction {
    /// From the GPU: the driver's checkpoint asks for at most so many bytes.
    /// `near` is whose memory is near to its GPUs.
    Out {
        bytes: u64,
        file: NewFile,
        near: Option<NumaNode>,
    },
    /// From the file that they are in: the driver's restore.
    In,
    /// The same, from a file that they are still loaded into ([`Step::Loaded`]).
    Arriving,
}

/// A step that the operation asks for, by a line; they come in this order. At the end of its
/// input, which is that of the operation, it puts everything back and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Step {
    /// Make the file, and give it its memory.
    Make,
    /// Lead the driver's calls to our code.
    Arm,
    /// Let all be copied but so many bytes at the end, which are not loaded yet. It comes as often
    /// as there is more.
    Loaded { missing: u64 },
    /// Put everything back.
    Disarm,
}

impl GpuCopy {
    /// The process that this one was started as, if it was.
    #[must_use]
    pub fn of_this_process() -> Option<Self> {
        respawn::job_of(VERB, c"stasis-gpu-copy")
    }

    /// Does it.
    ///
    /// # Errors
    /// Whoever asked for it hears of it, or is gone.
    pub fn run(self) -> io::Result<()> {
        match self {
            Self::Take(part) => part.run(),
            Self::PutBack(records) => said(put_back_all(&records)),
            Self::MakePrivate(processes) => said(make_all_private(processes)),
            Self::MakeReadable(process, devices) => said(make_readable(process, &devices)),
            Self::Survey(survey) => say_result(survey.run()),
            Self::GiveUp(imports) => said(imports.run()),
            Self::ShareAgain(imports) => said(imports.run()),
        }
    }
}

fn make_all_private(processes: Vec<ProcessId>) -> io::Result<()> {
    let mut processes = processes.into_iter();
    processes.try_for_each(|process| make_private(process, threads()))
}

/// One for each CPU that we may use.
pub(super) fn threads() -> NonZeroUsize {
    available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

pub(super) fn online_cpus() -> u64 {
    let online = sysconf(SysconfVar::_NPROCESSORS_ONLN).ok().flatten();
    online.and_then(|count| count.try_into().ok()).unwrap_or(1)
}

/// As many as the settings say.
pub(super) fn threads_for(wanted: usize) -> NonZeroUsize {
    NonZeroUsize::new(wanted).unwrap_or(NonZeroUsize::MIN)
}

impl Part {
    fn run(&self) -> io::Result<()> {
        if !asked(&Step::Make)? {
            return Ok(());
        }
        let made = said(self.make())?;
        if !asked(&Step::Arm)? {
            return Ok(());
        }
        let (armed, record) = match self.arm(made.as_ref()) {
            Ok(armed) => armed,
            Err(error) => {
                if let Some(made) = made.filter(|_| self.is_put_back()) {
                    made.unused();
                }
                return said(Err(error));
            }
        };
        // Also when nobody is there to hear it any more, the process is put back.
        let (goes_on, checksums) = match (said(Ok(())), &made) {
            (Err(error), _) => (Err(error), EarlyChecksums::default()),
            (Ok(()), Some(made)) if made.is_pack() => self.follow(&armed, made),
            (Ok(()), _) => (until_disarm(&armed), EarlyChecksums::default()),
        };
        if !matches!(goes_on, Ok(true)) {
            sleep(KILLER_IS_DONE);
        }
        let copied = disarm(armed, &record, made, &checksums);
        if goes_on? {
            say_result(copied.map_err(io::Error::other))?;
        }
        Ok(())
    }

    /// As [`until_disarm`], and takes checksums of what is copied meanwhile.
    /// Contents for which that fails get theirs later.
    fn follow(&self, armed: &Armed, made: &Made) -> (io::Result<bool>, EarlyChecksums) {
        let Made { file, bytes, .. } = made;
        let is_over = AtomicBool::new(false);
        let filled = || match is_over.load(Ordering::Relaxed) {
            true => None,
            false => Some(armed.reported().ok()?.filled),
        };
        thread::scope(|scope| {
            let taken = scope.spawn(|| EarlyChecksums::take(file, *bytes, self.behind(), filled));
            let goes_on = until_disarm(armed);
            is_over.store(true, Ordering::Relaxed);
            let taken = taken.join().ok().and_then(Result::ok);
            (goes_on, taken.unwrap_or_default())
        })
    }

    /// What can be known before the lock is a reason before it.
    fn make(&self) -> io::Result<Option<Made>> {
        let Direction::Out { bytes, file, near } = &self.direction else {
            return Ok(None);
        };
        slots::inspect(&self.there()?).map_err(io::Error::other)?;
        let threads = self.share.of_threads(threads());
        file.make(*bytes, threads, *near).map(Some)
    }

    /// Nothing of ours is in the process.
    fn is_put_back(&self) -> bool {
        self.there()
            .map_or(true, |process| !has_record(&self.records, &process))
    }

    fn there(&self) -> io::Result<ProcessRef> {
        let process = self.process.open()?;
        process.ok_or_else(|| io::Error::other("it has ended"))
    }

    fn arm(&self, made: Option<&Made>) -> io::Result<(Armed, HeldRecord)> {
        let process = self.there()?;
        let transfer = match (&self.direction, made) {
            (Direction::Out { bytes, .. }, Some(made)) => Transfer::Out {
                file: made.file.try_clone()?,
                offset: made.offset,
                length: *bytes,
            },
            (direction, _) => match (direction, &contents_of(&process)?[..]) {
                (Direction::Arriving, &[contents]) => Transfer::Arriving { contents },
                (_, &[contents]) => Transfer::In { contents },
                _ => return Err(io::Error::other(NO_CONTENTS)),
            },
        };
        let workers = self.workers(&process, made);
        arm(&process, transfer, workers, &self.records)
    }

    /// How many threads take checksums behind those that copy.
    fn behind(&self) -> NonZeroUsize {
        let threads = self.share.of_threads(threads()).get() / BEHIND_ONE_OF;
        NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN)
    }

    /// Its part of the CPUs that the process may use, without those of who clears its file and who
    /// takes checksums: with more threads than CPUs each step waits for one that does not run.
    fn workers(&self, process: &ProcessRef, made: Option<&Made>) -> u64 {
        let behind = made.filter(|made| made.is_pack());
        let behind = behind.map_or(0, |_| self.behind().get());
        let others = (made.map_or(0, Made::threads) + behind) as u64 + 1;
        let left = self.share.of(online_cpus()).saturating_sub(others);
        self.share.of(worker_count(process)).min(left).max(1)
    }
}

/// Says in the program what has been loaded, until the driver's call is over; false at the end of
/// the input.
fn until_disarm(armed: &Armed) -> io::Result<bool> {
    loop {
        match next::<Step>()? {
            None => return Ok(false),
            Some(Step::Disarm) => return Ok(true),
            Some(Step::Loaded { missing }) => say_result(armed.loaded(missing))?,
            Some(other) => return Err(io::Error::other(format!("asked for {other:?}"))),
        }
    }
}
