//! The plugin's part of a dump: take the memory once the tree is stopped, and give it back if the tasks go on.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use stasis_memory_store::{After, DumpOrder, ProcessMemory, Reader, Report, Writer};

use crate::areas::choose;
use crate::drain::{Source, Taken, drain};
use crate::error::Error;
use crate::progress::Progress;
use crate::refill::{Target, refill};
use crate::tree::traced;
use crate::{criu, orders};

/// CRIU calls from one thread, one call after the other.
static STATE: Mutex<State> = Mutex::new(State::Idle);

enum State {
    /// Nothing is to be done, or all is.
    Idle,
    /// The tree is not stopped yet.
    Ordered(Box<DumpOrder>),
    /// Tasks are without the memory that is in the store.
    Taken(Box<Held>),
}

/// What the tasks are without.
struct Held {
    order: DumpOrder,
    sources: Vec<Source>,
    processes: Vec<ProcessMemory>,
    reader: Reader,
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Before anything is stopped.
pub(crate) fn begin() -> Result<(), Error> {
    *state() = State::Ordered(Box::new(orders::dump_order()?));
    Ok(())
}

/// At the first task for which CRIU calls: the whole tree is stopped by then, and no memory has been looked at.
pub(crate) fn take() -> Result<(), Error> {
    let mut state = state();
    let State::Ordered(order) = std::mem::replace(&mut *state, State::Idle) else {
        return Ok(());
    };
    let mut report = Report::default();
    let path = order.report.clone();
    let taken = take_all(*order, &mut report);
    report.error = taken.as_ref().err().map(ToString::to_string);
    orders::tell(path.as_deref(), &report);
    if let Some(held) = taken? {
        *state = State::Taken(Box::new(held));
    }
    Ok(())
}

fn take_all(order: DumpOrder, report: &mut Report) -> Result<Option<Held>, Error> {
    let sources = find(&order, report)?;
    if sources.is_empty() {
        return Ok(None);
    }
    if !criu::note_in_image() {
        return Err(Error::Criu("take a note of the plugin for its image"));
    }
    let image_dir = criu::image_dir().ok_or(Error::Criu("tell its image directory"))?;
    let total = sources.iter().flat_map(|source| &source.areas);
    let progress = Progress::new(
        order.progress.as_deref(),
        total.map(|area| area.bytes).sum(),
    );
    let writer = Writer::create(&image_dir, &order)?;
    let begun = Instant::now();
    let (mut taken, drained) = drain(&sources, &writer, order.threads, &progress);
    report.copy_seconds = begun.elapsed().as_secs_f64();
    account(report, &sources, &taken);
    let processes = taken.processes(&sources);
    let kept = drained.and_then(|()| {
        let reader = writer.reader()?;
        writer.finish(&processes)?;
        Ok(reader)
    });
    match kept {
        Ok(reader) => Ok(Some(Held {
            order,
            sources,
            processes,
            reader,
        })),
        Err(first) => {
            let given = give_back_emptied(&sources, &processes, &taken, &writer, order.threads);
            match given {
                Ok(()) => {
                    writer.abandon();
                    Err(first)
                }
                // What is in the store is all that there is: it stays.
                Err(second) => {
                    stop_all(&sources);
                    Err(Error::Both {
                        first: Box::new(first),
                        second: Box::new(second),
                    })
                }
            }
        }
    }
}

fn find(order: &DumpOrder, report: &mut Report) -> Result<Vec<Source>, Error> {
    let tasks = traced().map_err(Error::task("find the tasks of", 0))?;
    let mappings: Vec<_> = tasks
        .iter()
        .map(super::tree::Task::mappings)
        .collect::<Result<_, _>>()?;
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

fn account(report: &mut Report, sources: &[Source], taken: &Taken) {
    report.processes = sources.len();
    report.areas = sources.iter().map(|source| source.areas.len()).sum();
    report.bytes = taken.bytes;
    report.zero_bytes = taken.zero_bytes;
    report.stored_bytes = taken.stored_bytes;
    report.reused_bytes = taken.reused_bytes;
    report.empty_seconds = taken.empty_time.as_secs_f64();
}

/// After a failure in the middle: tasks that were emptied are filled again, the others never lost anything.
fn give_back_emptied(
    sources: &[Source],
    processes: &[ProcessMemory],
    taken: &Taken,
    writer: &Writer,
    threads: usize,
) -> Result<(), Error> {
    let mut targets = targets(sources, processes);
    let number_of = |target: &Target<'_>| {
        sources
            .iter()
            .position(|source| source.task.pid == target.pid)
    };
    targets.retain(|target| {
        number_of(target).is_some_and(|source| taken.is_emptied(source, target.start()))
    });
    refill(
        &targets,
        &writer.reader()?,
        threads,
        &Progress::new(None, 0),
    )
}

fn targets<'a>(sources: &[Source], processes: &'a [ProcessMemory]) -> Vec<Target<'a>> {
    let mut targets = Vec::new();
    for (source, process) in sources.iter().zip(processes) {
        for area in &process.areas {
            targets.extend(area.chunks.iter().map(|chunk| Target {
                pid: source.task.pid,
                pid_inside: process.pid,
                area: area.start,
                chunk,
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
    if succeeded && held.order.after == After::End {
        return Ok(());
    }
    let begun = Instant::now();
    let targets = targets(&held.sources, &held.processes);
    let filled = refill(
        &targets,
        &held.reader,
        held.order.threads,
        &Progress::new(None, 0),
    );
    if filled.is_err() {
        stop_all(&held.sources);
    }
    filled?;
    criu::log_info(&format!(
        "all memory is back after {:.2} s",
        begun.elapsed().as_secs_f64()
    ));
    Ok(())
}

/// Tasks that are without some of their memory must not run: they stay stopped when CRIU lets them go.
fn stop_all(sources: &[Source]) {
    for source in sources {
        let pid = source.task.pid;
        criu::log_error(&format!(
            "process {pid} lacks memory, which is in the store, and is kept stopped"
        ));
        let _ = kill(Pid::from_raw(pid), Signal::SIGSTOP);
    }
}

/// After a panic: nobody knows what is missing.
pub(crate) fn hold() {
    for task in traced().unwrap_or_default() {
        let _ = kill(Pid::from_raw(task.pid), Signal::SIGSTOP);
    }
}
