//! The plugin's part of a dump: take the memory once the tree is stopped, and give it back if the tasks go on.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use stasis_memory_store::{After, DumpOrder, ProcessMemory, Reader, Report, Writer, discard};

use crate::areas::choose;
use crate::drain::{Source, Taken, drain};
use crate::error::{Error, caught};
use crate::fault::{self, Point};
use crate::guard::Guard;
use crate::progress::Progress;
use crate::proxies::Proxies;
use crate::refill::{Target, refill};
use crate::tree::{Task, traced};
use crate::uffd::Userfaultfd;
use crate::wake::Wakes;
use crate::{criu, orders};

/// CRIU calls from one thread, one call after the other.
static STATE: Mutex<State> = Mutex::new(State::Idle);

enum State {
    /// Nothing is to be done, or all is.
    Idle,
    /// The tree is not stopped yet.
    Ordered {
        order: Box<DumpOrder>,
        _wakes: Option<Wakes>,
    },
    /// Tasks are without the memory that is in the store.
    Taken(Box<Held>),
}

/// What the tasks are without.
struct Held {
    order: DumpOrder,
    sources: Vec<Source>,
    processes: Vec<ProcessMemory>,
    reader: Reader,
    guard: Guard,
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Before anything is stopped.
pub(crate) fn begin() -> Result<(), Error> {
    let order = orders::dump_order()?;
    *state() = State::Ordered {
        order: Box::new(order),
        // Only speed depends on them.
        _wakes: Wakes::start().ok(),
    };
    Ok(())
}

/// At the first task for which CRIU calls: the whole tree is stopped by then, and no memory has been looked at.
pub(crate) fn take() -> Result<(), Error> {
    let mut state = state();
    let order = match std::mem::replace(&mut *state, State::Idle) {
        State::Ordered { order, .. } => order,
        // CRIU calls for every task.
        other => {
            *state = other;
            return Ok(());
        }
    };
    let mut report = Report::default();
    let path = order.report.clone();
    let taken = caught(|| take_all(*order, &mut report));
    report.error = taken.as_ref().err().map(Error::told);
    orders::log(&report);
    orders::tell(path.as_deref(), &report);
    if let Some(held) = taken? {
        *state = State::Taken(Box::new(held));
    }
    Ok(())
}

fn take_all(order: DumpOrder, report: &mut Report) -> Result<Option<Held>, Error> {
    fault::point(Point::Take)?;
    let sources = find(&order, report)?;
    let image_dir = criu::image_dir().ok_or(Error::Criu("tell its image directory"))?;
    let mut writer = Writer::create(&image_dir, &order)?;
    if sources.is_empty() {
        // The engine's manifest was there before, and says that there is an index. Nobody corrects it if the engine is killed meanwhile.
        writer.finish(&[])?;
        return Ok(None);
    }
    if !criu::note_in_image() {
        return Err(Error::Criu("take a note of the plugin for its image"));
    }
    let (mut taken, guard, drained) = take_into(&writer, &sources, &order, report)?;
    let processes = taken.processes(&sources);
    let kept = drained.and_then(|()| {
        fault::point(Point::Finish)?;
        Ok(writer.finish(&processes)?)
    });
    let held = Held {
        reader: writer.reader(),
        order,
        sources,
        processes,
        guard,
    };
    let Err(first) = kept else {
        return Ok(Some(held));
    };
    let is_emptied = |target: &Target<'_>| taken.is_emptied(target.pid, target.start());
    match held.give_back(is_emptied) {
        Ok(()) => Err(first),
        Err(second) => {
            // What is in the store is all that there is: it stays.
            std::mem::forget(writer);
            Err(Error::Both {
                first: Box::new(first),
                second: Box::new(second),
            })
        }
    }
}

/// Nothing has been changed if this fails; what fails later is in the last of the three.
fn take_into(
    writer: &Writer,
    sources: &[Source],
    order: &DumpOrder,
    report: &mut Report,
) -> Result<(Taken, Guard, Result<(), Error>), Error> {
    let areas = || sources.iter().flat_map(|source| &source.areas);
    let chunks: u64 = areas().map(|area| area.chunks().count() as u64).sum();
    let threads = usize::try_from(chunks)
        .unwrap_or(usize::MAX)
        .min(order.threads)
        .max(1);
    let mut lanes = Vec::new();
    for _ in 0..threads {
        let mut lane = writer.lane()?;
        lane.open()?;
        lanes.push(lane);
    }
    let mut proxies = Proxies::of(sources)?;
    let mut guard = Guard::start(sources, proxies.all(), writer, order)?;
    let total = areas().map(|area| area.bytes).sum();
    let progress = Progress::new(order.progress.as_deref(), total);
    let begun = Instant::now();
    let (taken, drained) = drain(sources, proxies.all(), lanes, &mut guard, &progress);
    let drained = proxies.end().and(drained);
    report.copy_seconds = begun.elapsed().as_secs_f64();
    report.empty_seconds = taken.empty_time.as_secs_f64();
    report.processes = sources.len();
    report.areas = areas().count();
    report.bytes = taken.counts.bytes;
    report.zero_bytes = taken.counts.zero;
    report.stored_bytes = taken.counts.stored;
    report.reused_bytes = taken.counts.reused;
    Ok((taken, guard, drained))
}

fn find(order: &DumpOrder, report: &mut Report) -> Result<Vec<Source>, Error> {
    let tasks = traced().map_err(Error::task("find the tasks of", 0))?;
    let mappings: Vec<_> = tasks.iter().map(Task::mappings).collect::<Result<_, _>>()?;
    let mut sources = Vec::new();
    for (number, task) in tasks.iter().enumerate() {
        let others: Vec<_> = (0..tasks.len())
            .filter(|other| *other != number)
            .map(|other| mappings[other].as_slice())
            .collect();
        let minimum = order.minimum_mib << 20;
        let choice = choose(task, &mappings[number], &others, minimum)?;
        report.left_to_criu.extend(choice.left);
        if !choice.areas.is_empty() {
            sources.push(Source {
                task: task.clone(),
                areas: choice.areas,
            });
        }
    }
    Ok(sources)
}

impl Held {
    /// Gives back those chunks. If that fails, the guard, which hears no more from us, tries it again, and keeps whoever lacks memory
    /// from missing it.
    fn give_back(self, wanted: impl Fn(&Target<'_>) -> bool) -> Result<(), Error> {
        let mut targets = targets(&self.sources, &self.processes, self.guard.memory());
        targets.retain(wanted);
        let nobody = Progress::new(None, 0);
        let filled = refill(&targets, &self.reader, self.order.threads, &nobody);
        filled.and_then(|()| self.guard.dismiss(&self.sources))
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

/// CRIU has ended the dump and is about to let the tasks go, or to kill them.
pub(crate) fn end(succeeded: bool) -> Result<(), Error> {
    let State::Taken(held) = std::mem::replace(&mut *state(), State::Idle) else {
        return Ok(());
    };
    let report = held.order.report.clone();
    let ended = caught(|| end_of(*held, succeeded));
    if let Err(error) = &ended {
        orders::tell_more(report.as_deref(), |report| {
            report.error = Some(error.told());
        });
    }
    ended
}

fn end_of(held: Held, succeeded: bool) -> Result<(), Error> {
    fault::point(Point::End)?;
    if succeeded && held.order.after == After::End {
        // It stays until CRIU ends: that is when the guard looks whether the tasks were killed after all.
        std::mem::forget(held);
        return Ok(());
    }
    let begun = Instant::now();
    let directory = held.order.directory.clone();
    held.give_back(|_| true)?;
    if !succeeded && let Some(image_dir) = criu::image_dir() {
        // CRIU leaves its own incomplete images, too; but these are large.
        let _ = discard(&image_dir, directory.as_deref());
    }
    criu::log_info(&format!(
        "all memory is back after {:.2} s",
        begun.elapsed().as_secs_f64()
    ));
    Ok(())
}
