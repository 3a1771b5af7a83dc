//! The plugin's part of a dump: it takes the memory once the tree is stopped, and gives it back if
//! the tasks go on.
//!
//! Before CRIU stops the tree, [`freezer_wakeup`] shortens the time that CRIU sleeps meanwhile.
//! Then:
//! 1. [`tasks`](crate::tasks) finds the tasks, [`mod@verify`] compares them with the engine's
//!    record, [`mod@find`] chooses areas of their mappings by [`select`].
//!    If the engine has stored everything ([`Take::Nothing`]), [`holes`] is all that is left to do.
//! 2. [`memory_proxies`] makes a process for each task that shares its memory, and with it a
//!    userfaultfd ([`uffd`](crate::uffd)): a thread that touches a missing page will wait.
//! 3. [`uffd_daemon`] is forked. It gives the memory back if CRIU is killed from here on.
//! 4. [`mod@drain`]: threads [`mod@copy`] the pages that have contents into the store; behind them
//!    the proxies free what is stored.
//! 5. The index is written. The [`report`] is for the engine and for CRIU's log.
//!
//! A task that cannot be dealt with is left to CRIU, alone. Until the first page is freed, an error
//! changes nothing. After that everything is given back ([`mod@give_back`]); if that fails as well,
//! the daemon tries again, and the store, which has the only copy, stays.

mod copy;
mod drain;
mod drained;
mod find;
mod fork;
mod freezer_wakeup;
mod give_back;
mod holes;
mod memory_proxies;
mod select;
mod source;
mod uffd_daemon;
mod verify;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use stasis_linux::error_chain;
use stasis_memory_store::{
    After, DumpRequest, ProcessMemory, Reader, Report, Take, Writer, discard,
};

use self::drain::drain;
use self::drained::Drained;
use self::find::find;
use self::freezer_wakeup::FreezerWakeup;
use self::give_back::give_back;
use self::memory_proxies::Reached;
use self::source::Source;
use self::uffd_daemon::UffdDaemon;
use self::verify::verify;
use crate::criu;
use crate::engine::progress::Progress;
use crate::engine::{report, request};
use crate::error::{Error, caught};
use crate::fault_injection::{self, Point};
use crate::refill::Target;
use crate::tasks::tree::dumped;
use crate::uffd::Userfaultfd;

/// CRIU calls from one thread, one call after the other.
static STATE: Mutex<State> = Mutex::new(State::Idle);

enum State {
    /// No dump, or there is nothing left to do.
    Idle,
    /// The tree is not stopped yet.
    Requested {
        request: Box<DumpRequest>,
        _wakeup: Option<FreezerWakeup>,
    },
    /// The memory is in the store, and the tasks lack it.
    Drained(Box<DrainedMemory>),
}

/// Memory that the tasks lack.
struct DrainedMemory {
    request: DumpRequest,
    sources: Vec<Source>,
    processes: Vec<ProcessMemory>,
    reader: Reader,
    daemon: UffdDaemon,
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Before anything is stopped. Without an engine nothing is taken: nobody would look after the
/// tasks and the store.
pub(crate) fn begin() -> Result<(), Error> {
    let Some(request) = request::for_dump()? else {
        return Ok(());
    };
    *state() = State::Requested {
        request: Box::new(request),
        // Without them the dump is only slower.
        _wakeup: FreezerWakeup::start().ok(),
    };
    Ok(())
}

/// CHECKPOINT_DEVICES, of which the first call, with the root of the tree that CRIU dumps, does
/// everything: by then the whole tree is stopped, and CRIU has not looked at any memory.
pub(crate) fn take(root: i32) -> Result<(), Error> {
    let mut state = state();
    let request = match std::mem::replace(&mut *state, State::Idle) {
        State::Requested { request, .. } => request,
        // CRIU calls the hook for every task.
        other => {
            *state = other;
            return Ok(());
        }
    };
    let mut report = Report::default();
    let path = request.report.clone();
    let taken = caught(|| take_all(root, *request, &mut report));
    report.error = taken.as_ref().err().map(|error| error_chain(error));
    if let Err(Error::Tree(mismatch)) = &taken {
        report.mismatch = Some(*mismatch);
    }
    report::log(&report);
    report::write(path.as_deref(), &report);
    if let Some(held) = taken? {
        *state = State::Drained(Box::new(held));
    }
    Ok(())
}

fn take_all(
    root: i32,
    request: DumpRequest,
    report: &mut Report,
) -> Result<Option<DrainedMemory>, Error> {
    fault_injection::point(Point::Take)?;
    let tasks = dumped(root).map_err(Error::task("find the tasks below", root))?;
    verify(&tasks, &request.cuda)?;
    let found = find(&tasks, &request, report)?;
    let image_dir = criu::image_dir().ok_or(Error::Criu("tell its image directory"))?;
    if request.take == Take::Nothing {
        holes::verify(&image_dir, request.image_id)?;
        return criu::note_in_image().map(|()| None);
    }
    let mut reached = Reached::of(found, &mut report.left_to_criu);
    let mut writer = Writer::create(&image_dir, &request)?;
    report.not_reused = writer.not_reused();
    if reached.sources.is_empty() {
        // The engine has already written a manifest that promises an index, and nobody would
        // correct it if the engine were killed now.
        writer.finish(&[])?;
        return Ok(None);
    }
    criu::note_in_image()?;
    let (mut taken, daemon, drained) = take_into(&writer, &mut reached, &request, report)?;
    let sources = reached.sources;
    let processes = taken.processes(&sources);
    let kept = drained.and_then(|()| {
        fault_injection::point(Point::Finish)?;
        Ok(writer.finish(&processes)?)
    });
    let held = DrainedMemory {
        reader: writer.reader(),
        request,
        sources,
        processes,
        daemon,
    };
    let Err(first) = kept else {
        return Ok(Some(held));
    };
    match held.give_back() {
        Ok(()) => Err(first),
        Err(second) => {
            // The store has the only copy, so it stays.
            std::mem::forget(writer);
            Err(Error::Both {
                first: Box::new(first),
                second: Box::new(second),
            })
        }
    }
}

/// If this fails, no task was changed. A failure after the first change is the third value.
fn take_into(
    writer: &Writer,
    reached: &mut Reached,
    request: &DumpRequest,
    report: &mut Report,
) -> Result<(Drained, UffdDaemon, Result<(), Error>), Error> {
    let sources = &reached.sources;
    let areas = || sources.iter().flat_map(|source| &source.areas);
    let chunks: u64 = areas().map(|area| area.chunks().count() as u64).sum();
    let threads = usize::try_from(chunks)
        .unwrap_or(usize::MAX)
        .min(request.threads)
        .max(1);
    let mut streams = Vec::new();
    for _ in 0..threads {
        let mut stream = writer.stream()?;
        stream.open()?;
        streams.push(stream);
    }
    let memory = std::mem::take(&mut reached.memory);
    let proxies = &mut reached.proxies;
    let mut daemon = UffdDaemon::start(sources, memory, proxies.all(), writer, request)?;
    let total = areas().map(|area| area.bytes).sum();
    let progress = Progress::new(request.progress.as_deref(), total);
    let begun = Instant::now();
    let (mut taken, drained) = drain(sources, proxies.all(), streams, &mut daemon, &progress);
    let drained = proxies.end_all().and(drained);
    report.left_to_criu.append(&mut taken.left);
    report.copy_seconds = begun.elapsed().as_secs_f64();
    report.empty_seconds = taken.empty_time.as_secs_f64();
    report.processes = sources.len();
    report.areas = areas().count();
    report.bytes = taken.counts.bytes;
    report.zero_bytes = taken.counts.zero;
    report.stored_bytes = taken.counts.stored;
    report.reused_bytes = taken.counts.reused;
    report.not_reused = writer.not_reused();
    Ok((taken, daemon, drained))
}

impl DrainedMemory {
    /// Gives everything back. If that fails, the daemon, whose socket is closed then, tries again,
    /// and until it succeeds tasks wait for the pages that they lack.
    fn give_back(self) -> Result<(), Error> {
        let memory = self.daemon.memory();
        let targets = targets(&self.sources, &self.processes, memory);
        let threads = self.request.threads;
        let all_given = || self.daemon.all_given();
        give_back(
            &self.sources,
            memory,
            &targets,
            &self.reader,
            threads,
            all_given,
        )
    }
}

fn targets<'a>(
    sources: &[Source],
    processes: &'a [ProcessMemory],
    memory: &'a [Userfaultfd],
) -> Vec<Target<'a>> {
    let mut targets = Vec::new();
    for ((source, process), memory) in sources.iter().zip(processes).zip(memory) {
        for area in &process.areas {
            targets.extend(area.chunks.iter().map(|chunk| Target {
                pid: source.task.pid,
                pid_inside: process.pid,
                area: area.start,
                chunk,
                memory: Some(memory),
            }));
        }
    }
    targets
}

/// The end of the dump: CRIU is about to let the tasks go, or to kill them.
pub(crate) fn end(succeeded: bool) -> Result<(), Error> {
    let State::Drained(held) = std::mem::replace(&mut *state(), State::Idle) else {
        return Ok(());
    };
    let report = held.request.report.clone();
    let ended = caught(|| end_of(*held, succeeded));
    if let Err(error) = &ended {
        report::amend(report.as_deref(), |report| {
            report.error = Some(error_chain(error));
        });
    }
    ended
}

fn end_of(held: DrainedMemory, succeeded: bool) -> Result<(), Error> {
    fault_injection::point(Point::End)?;
    if succeeded && held.request.after == After::End {
        // Kept until CRIU ends: only then does the daemon look whether the tasks were really
        // killed.
        std::mem::forget(held);
        return Ok(());
    }
    let begun = Instant::now();
    let directory = held.request.directory.clone();
    held.give_back()?;
    if !succeeded && let Some(image_dir) = criu::image_dir() {
        // CRIU leaves its own incomplete images as well, but these are large.
        let _ = discard(&image_dir, directory.as_deref());
    }
    criu::log_info(&format!(
        "all memory is back after {:.2} s",
        begun.elapsed().as_secs_f64()
    ));
    Ok(())
}
