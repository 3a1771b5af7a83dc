//! The plugin's part of a restore: no task runs with a hole where GPU contents belong, and tasks
//! are held if the engine asks for that.

mod hold;

use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use stasis_linux::cgroup::criu_yard;
use stasis_memory_store::{Holes, ImageId, Index, RestoreRequest};

use crate::criu;
use crate::error::Error;
use crate::fault_injection::{self, Point};
use crate::request;
use crate::tasks::traced;

/// Refuses an image whose holes no process fills, before anything is restored.
pub(crate) fn begin() -> Result<(), Error> {
    criu::answer_note();
    let request: Option<RestoreRequest> = request::read()?;
    let request = request.unwrap_or_default();
    hold::prepare(request.freeze);
    let image_dir = criu::image_dir().ok_or(Error::Criu("tell its image directory"))?;
    let index = Index::read(&image_dir)?;
    refuse_other(index.as_ref(), request.image_id)?;
    index.map_or(Ok(()), |index| leave_holes(&index, request.holes))
}

/// Refuses another image, which may have come into the directory since the engine looked.
fn refuse_other(index: Option<&Index>, expected: Option<ImageId>) -> Result<(), Error> {
    let found = index.map(|index| index.image_id);
    match expected {
        Some(expected) if found != Some(expected) => Err(Error::OtherImage {
            found: found.map_or_else(|| "none".to_owned(), |found| found.to_string()),
            expected: expected.to_string(),
        }),
        _ => Ok(()),
    }
}

/// Accepts the holes of an index only if the engine fills them.
fn leave_holes(index: &Index, filled_by: Holes) -> Result<(), Error> {
    let mut processes = index.processes.iter();
    let first = processes.find_map(|process| Some((process.pid, process.areas.first()?)));
    match (first, filled_by) {
        (None, _) | (_, Holes::Engine) => Ok(()),
        (Some((pid, hole)), Holes::Nobody) => Err(Error::Hole {
            pid,
            start: hole.start,
            bytes: hole.bytes,
        }),
    }
}

/// RESUME_DEVICES_LATE, of which the first call does everything: by then all tasks are complete,
/// and stopped.
pub(crate) fn complete() -> Result<(), Error> {
    fault_injection::point(Point::Restore)?;
    hold::tasks()
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
        Err(error) => criu::log_error(&format!("cannot find the tasks of the restore: {error}")),
    }
    // CRIU's current directory is its work directory.
    criu_yard::clear(Path::new("."));
    std::process::exit(1);
}

#[cfg(test)]
mod tests {
    use stasis_memory_store::{Area, PacksIn, ProcessMemory};

    use super::*;

    fn index(processes: &[(i32, &[u64])]) -> Index {
        let area = |start: &u64| Area {
            start: start << 30,
            bytes: 0x1000,
            chunks: Vec::new(),
        };
        let process = |(pid, areas): &(i32, &[u64])| ProcessMemory {
            pid: *pid,
            areas: areas.iter().map(area).collect(),
        };
        Index {
            image_id: ImageId::new(1),
            packs_in: PacksIn::Image,
            packs: Vec::new(),
            processes: processes.iter().map(process).collect(),
        }
    }

    #[test]
    fn holes_are_left_to_who_fills_them_and_refused_without() {
        let whole = index(&[(1, &[]), (7, &[2])]);
        leave_holes(&whole, Holes::Engine).unwrap();
        let refused = leave_holes(&whole, Holes::Nobody).unwrap_err();
        let (message, names) = (
            refused.to_string(),
            "process 7 of the container at 80000000",
        );
        assert!(message.contains(names), "{message}");
        leave_holes(&index(&[(1, &[])]), Holes::Nobody).unwrap();
        for expected in [None, Some(ImageId::new(1))] {
            refuse_other(Some(&whole), expected).unwrap();
        }
        for found in [None, Some(&whole)] {
            refuse_other(found, Some(ImageId::new(2))).unwrap_err();
        }
        // So does a request that says nothing of them.
        let request: RestoreRequest = serde_json::from_str("{}").unwrap();
        assert_eq!(request.holes, Holes::Nobody);
    }
}
