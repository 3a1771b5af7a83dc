//! The plugin's part of a restore: tasks get their memory back before any of them runs, and are
//! held if the engine asks for that.

mod hold;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use stasis_linux::cgroup::criu_yard;
use stasis_linux::error_chain;
use stasis_memory_store::{Area, CriuHas, Holes, Index, Reader, Report, RestoreRequest};

use crate::criu;
use crate::engine::progress::Progress;
use crate::engine::{report, request};
use crate::error::{Error, caught};
use crate::fault_injection::{self, Point};
use crate::refill::{Target, refill};
use crate::tasks::page_size;
use crate::tasks::smaps::Mapping;
use crate::tasks::tree::{Task, traced};

/// CRIU calls from one thread, one call after the other.
static STATE: Mutex<Option<Box<PendingRestore>>> = Mutex::new(None);

/// Memory that the tasks do not have yet.
struct PendingRestore {
    request: Option<RestoreRequest>,
    index: Index,
    reader: Reader,
}

fn state() -> MutexGuard<'static, Option<Box<PendingRestore>>> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Before anything is restored: refuses an image whose memory is missing.
pub(crate) fn begin() -> Result<(), Error> {
    criu::answer_note();
    let request = request::for_restore()?;
    hold::prepare(request.as_ref());
    let image_dir = criu::image_dir().ok_or(Error::Criu("tell its image directory"))?;
    let Some(mut index) = Index::read(&image_dir)? else {
        return Ok(());
    };
    let holes = request.as_ref().map(|request| request.holes);
    leave_holes(&mut index, holes.unwrap_or_default())?;
    if index.is_empty() {
        return Ok(());
    }
    page_size::check()?;
    if let Some(request) = &request
        && request.image_id != Some(index.image_id)
    {
        let expected = request.image_id.map(|id| id.to_string());
        return Err(Error::OtherImage {
            found: index.image_id.to_string(),
            expected: expected.unwrap_or_default(),
        });
    }
    let directory = request
        .as_ref()
        .and_then(|request| request.directory.as_deref());
    let reader = Reader::open(&image_dir, &index, directory)?;
    *state() = Some(Box::new(PendingRestore {
        request,
        index,
        reader,
    }));
    Ok(())
}

/// Takes the holes out of an index, for whoever fills them.
fn leave_holes(index: &mut Index, filled_by: Holes) -> Result<(), Error> {
    for process in &mut index.processes {
        let mut areas = process.areas.iter();
        let hole = areas.find(|area| area.criu_has == CriuHas::Hole);
        if let (Some(hole), Holes::Nobody) = (hole, filled_by) {
            return Err(Error::Hole {
                pid: process.pid,
                start: hole.start,
                bytes: hole.bytes,
            });
        }
        process
            .areas
            .retain(|area| area.criu_has == CriuHas::Memory);
    }
    index.processes.retain(|process| !process.areas.is_empty());
    Ok(())
}

/// RESUME_DEVICES_LATE, of which the first call does everything: by then all tasks are complete,
/// and stopped.
pub(crate) fn complete() -> Result<(), Error> {
    if let Some(pending) = state().take() {
        give_back(&pending)?;
    }
    hold::tasks()
}

fn give_back(pending: &PendingRestore) -> Result<(), Error> {
    let request = pending.request.as_ref();
    let mut report = Report::default();
    let given = caught(|| pending.give_back(&mut report));
    report.error = given.as_ref().err().map(|error| error_chain(error));
    report::log(&report);
    report::write(
        request.and_then(|request| request.report.as_deref()),
        &report,
    );
    given
}

impl PendingRestore {
    fn give_back(&self, report: &mut Report) -> Result<(), Error> {
        let tasks = traced().map_err(Error::task("find the tasks of", 0))?;
        for task in &tasks {
            task.die_with_us()?;
        }
        fault_injection::point(Point::GiveBack)?;
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
        let request = self.request.as_ref();
        let progress = request.and_then(|request| request.progress.as_deref());
        let threads = request.map_or_else(request::threads, |request| request.threads);
        let begun = Instant::now();
        let progress = Progress::new(progress, report.bytes);
        refill(&targets, &self.reader, threads, &progress)?;
        report.copy_seconds = begun.elapsed().as_secs_f64();
        Ok(())
    }
}

/// Neither the index nor CRIU's images are trusted: an area is filled only if CRIU has made a
/// private writable mapping there.
fn check(task: &Task, area: &Area, mappings: &[Mapping]) -> Result<(), Error> {
    let end = area.start.saturating_add(area.bytes);
    let mut at = area.start;
    for mapping in mappings {
        let fits = mapping.is_private_anonymous() && mapping.is_read_write();
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

/// The restore has failed: kills all tasks, and ends CRIU before it reports success.
#[allow(clippy::exit)] // CRIU ignores the answer of the hook that we are in
pub(crate) fn end_all() {
    match traced() {
        Ok(tasks) => {
            for task in tasks {
                let _ = kill(Pid::from_raw(task.pid), Signal::SIGKILL);
            }
        }
        // They were tied to our life when giving back began.
        Err(error) => criu::log_error(&format!("cannot find the tasks of the restore: {error}")),
    }
    // CRIU's current directory is its work directory.
    criu_yard::clear(Path::new("."));
    std::process::exit(1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use stasis_memory_store::{ImageId, ProcessMemory, Tier};

    fn mapping(start: u64, end: u64, permissions: &[u8; 4]) -> Mapping {
        Mapping {
            start,
            end,
            permissions: *permissions,
            ..Mapping::default()
        }
    }

    fn index(areas: &[(i32, &[CriuHas])]) -> Index {
        let area = |(start, criu_has): (u64, &CriuHas)| Area {
            start: start << 30,
            bytes: 0x1000,
            criu_has: *criu_has,
            chunks: Vec::new(),
        };
        let process = |(pid, areas): &(i32, &[CriuHas])| ProcessMemory {
            pid: *pid,
            areas: (1..).zip(*areas).map(area).collect(),
        };
        Index {
            image_id: ImageId::new(1),
            tier: Tier::Portable,
            packs: Vec::new(),
            processes: areas.iter().map(process).collect(),
        }
    }

    #[test]
    fn holes_are_left_to_who_fills_them_and_refused_without() {
        use CriuHas::{Hole, Memory};
        let mut whole = index(&[(1, &[Memory, Hole]), (7, &[Hole]), (9, &[Memory])]);
        let mut left = whole.clone();
        leave_holes(&mut left, Holes::Engine).unwrap();
        assert_eq!(left, index(&[(1, &[Memory]), (9, &[Memory])]));
        let refused = leave_holes(&mut whole, Holes::Nobody).unwrap_err();
        let (message, names) = (
            refused.to_string(),
            "process 1 of the container at 80000000",
        );
        assert!(message.contains(names), "{message}");
        leave_holes(&mut left, Holes::Nobody).unwrap();
        // So does a request that says nothing of them.
        let request = r#"{"image_id": "00000000000000000000000000000001", "threads": 1}"#;
        let request: RestoreRequest = serde_json::from_str(request).unwrap();
        assert_eq!(request.holes, Holes::Nobody);
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
            criu_has: CriuHas::Memory,
            chunks: Vec::new(),
        };
        let there = |mappings: &[Mapping]| check(&task, &area, mappings).is_ok();
        assert!(there(&[mapping(0, 0x5000, b"rw-p")]));
        assert!(there(&[
            mapping(0, 0x2000, b"rw-p"),
            mapping(0x2000, 0x4000, b"rwxp")
        ]));
        assert!(!there(&[mapping(0, 0x3000, b"rw-p")]));
        assert!(!there(&[
            mapping(0, 0x2000, b"rw-p"),
            mapping(0x3000, 0x4000, b"rw-p")
        ]));
        assert!(!there(&[mapping(0, 0x5000, b"rw-s")]));
        assert!(!there(&[mapping(0, 0x5000, b"r--p")]));
        let file = Mapping {
            inode: 4,
            ..mapping(0, 0x5000, b"rw-p")
        };
        assert!(!there(&[file]));
        let huge = Area {
            bytes: u64::MAX,
            ..area.clone()
        };
        assert!(check(&task, &huge, &[mapping(0, 0x5000, b"rw-p")]).is_err());
    }
}
