//! The plugin's part of a restore: tasks get their memory back before any of them runs.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use stasis_memory_store::{Area, Index, Reader, Report, RestoreOrder};

use crate::error::{Error, caught};
use crate::fault::{self, Point};
use crate::progress::Progress;
use crate::refill::{Target, refill};
use crate::smaps::Mapping;
use crate::tree::{Task, traced};
use crate::{criu, orders, yard};

/// CRIU calls from one thread, one call after the other.
static STATE: Mutex<Option<Box<Awaited>>> = Mutex::new(None);

/// Memory that is still to be given back.
struct Awaited {
    order: Option<RestoreOrder>,
    index: Index,
    reader: Reader,
}

fn state() -> MutexGuard<'static, Option<Box<Awaited>>> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Before anything is restored: an image whose memory is not there is refused now.
pub(crate) fn begin() -> Result<(), Error> {
    criu::answer_note();
    let order = orders::restore_order()?;
    let image_dir = criu::image_dir().ok_or(Error::Criu("tell its image directory"))?;
    let Some(index) = Index::read(&image_dir)? else {
        return Ok(());
    };
    if index.is_empty() {
        return Ok(());
    }
    if let Some(order) = &order
        && order.image_id != index.image_id
    {
        return Err(Error::OtherImage {
            found: index.image_id.to_string(),
            expected: order.image_id.to_string(),
        });
    }
    let directory = order.as_ref().and_then(|order| order.directory.as_deref());
    let reader = Reader::open(&image_dir, &index, directory)?;
    *state() = Some(Box::new(Awaited {
        order,
        index,
        reader,
    }));
    Ok(())
}

/// At the first task for which CRIU calls: all tasks are complete by then, and stopped.
pub(crate) fn give_back() -> Result<(), Error> {
    let Some(awaited) = state().take() else {
        return Ok(());
    };
    let order = awaited.order.as_ref();
    let mut report = Report::default();
    let given = caught(|| awaited.give_back(&mut report));
    report.error = given.as_ref().err().map(Error::told);
    orders::log(&report);
    orders::tell(order.and_then(|order| order.report.as_deref()), &report);
    given
}

impl Awaited {
    fn give_back(&self, report: &mut Report) -> Result<(), Error> {
        let tasks = traced().map_err(Error::task("find the tasks of", 0))?;
        for task in &tasks {
            task.die_with_us()?;
        }
        fault::point(Point::GiveBack)?;
        let mut targets = Vec::new();
        for process in &self.index.processes {
            let task = tasks
                .iter()
                .find(|task| task.pid_inside == process.pid)
                .ok_or(Error::NoProcess { pid: process.pid })?;
            let mappings = task.mappings()?;
            for area in &process.areas {
                check(task, area, &mappings)?;
                targets.extend(area.chunks.iter().map(|chunk| Target {
                    pid: task.pid,
                    pid_inside: process.pid,
                    area: area.start,
                    chunk,
                    memory: None,
                }));
                report.areas += 1;
            }
        }
        report.processes = self.index.processes.len();
        report.bytes = targets.iter().map(Target::bytes).sum();
        let order = self.order.as_ref();
        let progress = order.and_then(|order| order.progress.as_deref());
        let threads = order.map_or_else(orders::threads, |order| order.threads);
        let begun = Instant::now();
        let progress = Progress::new(progress, report.bytes);
        refill(&targets, &self.reader, threads, &progress)?;
        report.copy_seconds = begun.elapsed().as_secs_f64();
        Ok(())
    }
}

/// The index is not CRIU's, and neither is trusted: what it says is filled only where CRIU has made just that.
fn check(task: &Task, area: &Area, mappings: &[Mapping]) -> Result<(), Error> {
    let end = area.start.saturating_add(area.bytes);
    let mut at = area.start;
    for mapping in mappings {
        let fits = mapping.is_private_anonymous() && mapping.permissions.starts_with("rw");
        if fits && (mapping.start..mapping.end).contains(&at) {
            at = mapping.end;
        }
    }
    if at < end {
        return Err(Error::NoArea {
            pid: task.pid_inside,
            start: area.start,
            bytes: area.bytes,
        });
    }
    Ok(())
}

/// The restore has failed: nothing of it may run, and CRIU must not report success.
#[allow(clippy::exit)] // CRIU ignores the answer of the hook that we are in
pub(crate) fn end_all() {
    for task in traced().unwrap_or_default() {
        let _ = kill(Pid::from_raw(task.pid), Signal::SIGKILL);
    }
    yard::clear();
    std::process::exit(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, end: u64, permissions: &str) -> Mapping {
        Mapping {
            start,
            end,
            permissions: permissions.to_owned(),
            ..Mapping::default()
        }
    }

    #[test]
    fn memory_is_given_only_where_it_fits() {
        let task = Task {
            pid: 7,
            pid_inside: 1,
        };
        let area = Area {
            start: 0x1000,
            bytes: 0x3000,
            chunks: Vec::new(),
        };
        let there = |mappings: &[Mapping]| check(&task, &area, mappings).is_ok();
        assert!(there(&[mapping(0, 0x5000, "rw-p")]));
        assert!(there(&[
            mapping(0, 0x2000, "rw-p"),
            mapping(0x2000, 0x4000, "rwxp")
        ]));
        assert!(!there(&[mapping(0, 0x3000, "rw-p")]));
        assert!(!there(&[
            mapping(0, 0x2000, "rw-p"),
            mapping(0x3000, 0x4000, "rw-p")
        ]));
        assert!(!there(&[mapping(0, 0x5000, "rw-s")]));
        assert!(!there(&[mapping(0, 0x5000, "r--p")]));
        let file = Mapping {
            inode: 4,
            ..mapping(0, 0x5000, "rw-p")
        };
        assert!(!there(&[file]));
        let huge = Area {
            bytes: u64::MAX,
            ..area.clone()
        };
        assert!(check(&task, &huge, &[mapping(0, 0x5000, "rw-p")]).is_err());
    }
}
