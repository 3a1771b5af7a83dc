//! The process that copies the GPU contents of one process.
//!
//! If a process is killed while it has a thread of a program make a call, the program is lost
//! unless the thread has a way back (`remote-call`). Callers kill operations, so this is a process
//! of its own, in stasis' own cgroup, which so is charged for the contents: the kernel charges a
//! page of a file in memory to the first process that touches it.

use std::io::{self, stdin};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, available_parallelism, sleep};
use std::time::Duration;

use nix::unistd::{SysconfVar, sysconf};
use rustix::event::{PollFd, PollFlags, poll};
use serde::{Deserialize, Serialize};
use stasis_host::respawn::{self, Inherited};
use stasis_injection::survey::begin_no_more;
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
use super::steps::{asked, next, report_done, report_result};
use super::survey::Survey;
use crate::cuda::process_set::initial_state::ProcessId;

/// The first argument of such a process.
pub(super) const VERB: &str = "stasis-gpu-copy";
/// The delay between the end of its operation and putting anything back. A caller that kills one of
/// our processes often kills all, one after the other, and if one is killed while the program makes
/// a call for it, the program may be lost: not every thread has a way back (`remote-call`).
const KILLER_IS_DONE: Duration = Duration::from_millis(500);
/// One thread in this number takes checksums behind the others, which copy: each is as fast.
const BEHIND_ONE_OF: usize = 4;
const NO_CONTENTS: &str = "its GPU contents are not in one file of ours";

/// The work of the process.
#[derive(Debug, Serialize, Deserialize)]
pub enum GpuCopy {
    /// Takes part in one call of the driver.
    Take(Part),
    /// Puts back processes whose copying process was killed: their records are in this directory.
    PutBack(PathBuf),
    /// Makes the contents of these processes their ordinary memory.
    MakePrivate(Vec<ProcessId>),
    /// Makes addresses of a checkpointed process readable at which devices were mapped.
    MakeReadable(ProcessId, Vec<Span>),
    /// Asks locked processes for the GPU memory that they have, and share.
    Survey(Survey),
    /// Has processes give up the memory that they have imported from each other.
    GiveUp(GiveUp),
    /// Has processes share it again.
    ShareAgain(ShareAgain),
}

/// One call of the driver.
#[derive(Debug, Serialize, Deserialize)]
pub struct Part {
    pub(super) process: ProcessId,
    pub(super) direction: Direction,
    /// The process's part of the CPUs.
    pub(super) share: Share,
    /// The directory of the records.
    pub(super) records: PathBuf,
}

/// The direction of the copy.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Direction {
    /// From the GPU: the driver's checkpoint asks for at most `bytes`.
    /// `near` is the NUMA node near to its GPUs.
    Out {
        bytes: u64,
        file: NewFile,
        near: Option<NumaNode>,
    },
    /// From the file that has the contents: the driver's restore.
    In,
    /// The same, from a file that is still being loaded ([`Step::Loaded`]).
    Arriving,
}

/// A step that the operation asks for, by a line; they come in this order. At the end of its input,
/// which is that of the operation, the process puts everything back and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Step {
    /// Make the file, and allocate its memory.
    Make,
    /// Lead the driver's calls to our code.
    Arm,
    /// Let all be copied but `missing` bytes at the end, which are not loaded yet. This step comes
    /// as often as more is loaded.
    Loaded { missing: u64 },
    /// Put everything back.
    Disarm,
}

impl GpuCopy {
    /// The process that this one was started as, if it was.
    #[must_use]
    pub fn of_this_process() -> Option<Self> {
        respawn::job_with(VERB, c"stasis-gpu-copy", Self::inherited)
    }

    /// Work on locked processes, which nobody may unlock before it has ended: it holds the lock of
    /// its operation's children. It has no record before it is in the first process.
    fn inherited(&self) -> Inherited {
        match self {
            Self::Survey(_) | Self::GiveUp(_) | Self::ShareAgain(_) => Inherited::LocksKept,
            _ => Inherited::Closed,
        }
    }

    /// Does the work.
    ///
    /// # Errors
    /// The caller receives the error as well, or is gone.
    pub fn run(self) -> io::Result<()> {
        match self {
            Self::Take(part) => part.run(),
            Self::PutBack(records) => report_done(put_back_all(&records)),
            Self::MakePrivate(processes) => report_done(make_all_private(processes)),
            Self::MakeReadable(process, devices) => report_done(make_readable(process, &devices)),
            Self::Survey(survey) => report_result(as_asked(|| survey.run())),
            Self::GiveUp(imports) => report_done(as_asked(|| imports.run())),
            Self::ShareAgain(imports) => report_done(as_asked(|| imports.run())),
        }
    }
}

/// Works on locked processes while the operation waits for it: at the end of the input, which is
/// that of the operation, no request to them begins any more.
fn as_asked<T>(work: impl FnOnce() -> T) -> T {
    thread::spawn(|| {
        let input = stdin();
        // The end of the input is reported in any case (poll(2), POLLHUP).
        let mut input = [PollFd::new(&input, PollFlags::empty())];
        while !matches!(poll(&mut input, None), Ok(1..)) {}
        begin_no_more();
    });
    work()
}

fn make_all_private(processes: Vec<ProcessId>) -> io::Result<()> {
    let mut processes = processes.into_iter();
    processes.try_for_each(|process| make_private(process, threads()))
}

/// Returns one for each CPU that we may use.
pub(super) fn threads() -> NonZeroUsize {
    available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

pub(super) fn online_cpus() -> u64 {
    let online = sysconf(SysconfVar::_NPROCESSORS_ONLN).ok().flatten();
    online.and_then(|count| count.try_into().ok()).unwrap_or(1)
}

/// Returns the number in the settings.
pub(super) fn threads_for(wanted: usize) -> NonZeroUsize {
    NonZeroUsize::new(wanted).unwrap_or(NonZeroUsize::MIN)
}

impl Part {
    fn run(&self) -> io::Result<()> {
        if !asked(&Step::Make)? {
            return Ok(());
        }
        let made = report_done(self.make())?;
        if !asked(&Step::Arm)? {
            return Ok(());
        }
        let (armed, record) = match self.arm(made.as_ref()) {
            Ok(armed) => armed,
            Err(error) => {
                if let Some(made) = made.filter(|_| self.is_put_back()) {
                    made.unused();
                }
                return report_done(Err(error));
            }
        };
        // Also if the operation has ended before it could read this, the process is put back.
        let (goes_on, checksums) = match (report_done(Ok(())), &made) {
            (Err(error), _) => (Err(error), EarlyChecksums::default()),
            (Ok(()), Some(made)) if made.is_pack() => self.follow(&armed, made),
            (Ok(()), _) => (until_disarm(&armed), EarlyChecksums::default()),
        };
        if !matches!(goes_on, Ok(true)) {
            sleep(KILLER_IS_DONE);
        }
        let copied = disarm(armed, &record, made, &checksums);
        if goes_on? {
            report_result(copied.map_err(io::Error::other))?;
        }
        Ok(())
    }

    /// As [`until_disarm`], and takes checksums of the bytes that are copied meanwhile. Contents
    /// for which that fails get theirs later.
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

    /// Makes the file. Fails before the lock if the slots cannot be patched.
    fn make(&self) -> io::Result<Option<Made>> {
        let Direction::Out { bytes, file, near } = &self.direction else {
            return Ok(None);
        };
        slots::inspect(&self.there()?).map_err(io::Error::other)?;
        let threads = self.share.of_threads(threads());
        file.make(*bytes, threads, *near).map(Some)
    }

    /// Whether nothing of ours is in the process.
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

    /// Returns how many threads take checksums behind those that copy.
    fn behind(&self) -> NonZeroUsize {
        let threads = self.share.of_threads(threads()).get() / BEHIND_ONE_OF;
        NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN)
    }

    /// Returns the process's part of its CPUs, without those for threads that clear its file or
    /// take checksums: with more threads than CPUs each step waits for one that does not run.
    fn workers(&self, process: &ProcessRef, made: Option<&Made>) -> u64 {
        let behind = made.filter(|made| made.is_pack());
        let behind = behind.map_or(0, |_| self.behind().get());
        let others = (made.map_or(0, Made::threads) + behind) as u64 + 1;
        let left = self.share.of(online_cpus()).saturating_sub(others);
        self.share.of(worker_count(process)).min(left).max(1)
    }
}

/// Reports to the program what has been loaded, until the driver's call is over; false at the end
/// of the input.
fn until_disarm(armed: &Armed) -> io::Result<bool> {
    loop {
        match next::<Step>()? {
            None => return Ok(false),
            Some(Step::Disarm) => return Ok(true),
            Some(Step::Loaded { missing }) => report_result(armed.loaded(missing))?,
            Some(other) => return Err(io::Error::other(format!("asked for {other:?}"))),
        }
    }
}
