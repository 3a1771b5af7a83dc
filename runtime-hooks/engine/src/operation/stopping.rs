//! The lock of a process that makes a checkpoint of a container that is being stopped: a second
//! signal begins no second one, and would only stay for the restored container.
//! A lock is of a container's first process: another container may have the id, and be stopped as
//! well, by the time the image is on disk.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stasis_host::file_lock::{self, Sharing, lock_within};
use stasis_linux::ProcessRef;
use stasis_linux::directory::{Directory, Earlier};

use crate::operation::directory::directory_of;

/// The directory of all these locks, below the state directory.
const STOPPING: &str = "stopping";
/// A process that checks whether a lock is held takes it for a moment. That must not make a signal
/// look like a second one: no process would make the checkpoint.
const LOOK: Duration = Duration::from_secs(1);

/// The stop of one container.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stopping {
    directory: PathBuf,
    id: String,
    pid: i32,
    start_time: u64,
}

impl Stopping {
    /// The stop of the container with this first process.
    pub fn of(state_dir: &Path, root: &Path, id: &str, init: &ProcessRef) -> Self {
        Self {
            directory: directory_for(state_dir, root),
            id: id.to_owned(),
            pid: init.pid(),
            start_time: init.start_time(),
        }
    }

    /// Takes the lock, as long as the file is open; `None` if another process holds it.
    ///
    /// # Errors
    /// The file cannot be made or locked.
    pub fn begin(&self) -> io::Result<Option<File>> {
        let state_dir = self.directory.ancestors().nth(2).unwrap_or(&self.directory);
        Directory::make(state_dir, 0o700)?;
        let directory = Directory::make(&self.directory, 0o700)?;
        remove_abandoned(&self.directory);
        loop {
            let file = directory.log(&self.name(), Earlier::Continued)?;
            match lock_within(LOOK, &file, Sharing::Exclusive) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                other => other?,
            }
            // The former holder may have removed it meanwhile.
            let there = fs::metadata(self.directory.join(self.name()));
            if there.is_ok_and(|there| file.metadata().is_ok_and(|ours| ours.ino() == there.ino()))
            {
                return Ok(Some(file));
            }
        }
    }

    /// Whether a container that had the id before is still being stopped.
    pub fn is_behind_another(&self) -> bool {
        let own = self.name();
        locks_of(&self.directory, &self.id).any(|name| name != own && self.is_held(&name))
    }

    /// Removes the lock.
    pub fn end(&self) {
        // The directory stays: another container may be about to be stopped.
        let _ = fs::remove_file(self.directory.join(self.name()));
    }

    fn is_held(&self, name: &str) -> bool {
        is_held(&self.directory.join(name))
    }

    fn name(&self) -> String {
        format!("{}.{}-{}", self.id, self.pid, self.start_time)
    }
}

/// Whether a container of this id is being stopped.
pub(crate) fn is_under_way(state_dir: &Path, root: &Path, id: &str) -> bool {
    let directory = directory_for(state_dir, root);
    locks_of(&directory, id).any(|name| is_held(&directory.join(name)))
}

/// Named as the directory of the root's operations.
fn directory_for(state_dir: &Path, root: &Path) -> PathBuf {
    let operation = directory_of(state_dir, root, "id");
    let root = operation.parent().and_then(Path::file_name);
    state_dir
        .join(STOPPING)
        .join(root.unwrap_or(OsStr::new("")))
}

/// The names of the locks in a directory.
fn locks(directory: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

fn locks_of(directory: &Path, id: &str) -> impl Iterator<Item = String> {
    locks(directory).filter(move |name| name.rsplit_once('.').is_some_and(|(of, _)| of == id))
}

fn is_held(path: &Path) -> bool {
    file_lock::is_held(path, Sharing::Shared).unwrap_or(false)
}

/// Removes locks of killed processes whose containers have ended: a process that begins holds the
/// lock of a container that has not.
fn remove_abandoned(directory: &Path) {
    for name in locks(directory).filter(|name| has_ended(name)) {
        let path = directory.join(name);
        if !is_held(&path) {
            let _ = fs::remove_file(path);
        }
    }
}

fn has_ended(name: &str) -> bool {
    let process = name.rsplit_once('.').and_then(|(_, process)| {
        let (pid, start_time) = process.split_once('-')?;
        Some((pid.parse().ok()?, start_time.parse::<u64>().ok()?))
    });
    let Some((pid, start_time)) = process else {
        return false;
    };
    let is_it = |found: &ProcessRef| found.start_time() == start_time;
    ProcessRef::open(pid).is_ok_and(|found| !found.is_some_and(|found| is_it(&found)))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread::scope;

    use super::*;
    use stasis_host::file_lock::unlock;

    const ROOT: &str = "/run/runc";

    /// First processes of containers.
    struct First(Child);

    impl First {
        fn new() -> Self {
            Self(Command::new("cat").stdin(Stdio::piped()).spawn().unwrap())
        }

        fn stopping(&self, state: &Path, id: &str) -> Stopping {
            let pid = self.0.id().try_into().unwrap();
            let init = ProcessRef::open(pid).unwrap().unwrap();
            Stopping::of(state, Path::new(ROOT), id, &init)
        }

        fn end(mut self) {
            drop(self.0.stdin.take());
            self.0.wait().unwrap();
        }
    }

    fn is_under_way(state: &Path, id: &str) -> bool {
        super::is_under_way(state, Path::new(ROOT), id)
    }

    /// Ends a lock, as the end of its holder does: a process that another test has just started may
    /// have the file open for a moment.
    fn ends(lock: File) {
        unlock(&lock).unwrap();
        drop(lock);
    }

    fn left(state: &Path) -> usize {
        locks(&directory_for(state, Path::new(ROOT))).count()
    }

    #[test]
    fn a_container_is_stopped_once() {
        let state = tempfile::tempdir().unwrap();
        let state = &state.path().join("stasis");
        let (one, two) = (First::new(), First::new());
        assert!(!is_under_way(state, "c1"));
        let (first, other) = (one.stopping(state, "c1"), two.stopping(state, "c1.2"));
        let lock = first.begin().unwrap().unwrap();
        assert!(first.begin().unwrap().is_none());
        let another = other.begin().unwrap().unwrap();
        assert!(is_under_way(state, "c1"));
        drop(lock);
        first.end();
        assert!(!is_under_way(state, "c1") && is_under_way(state, "c1.2"));
        assert!(first.begin().unwrap().is_some());
        drop(another);
        first.end();
        other.end();
        assert_eq!(left(state), 0);
        one.end();
        two.end();
    }

    #[test]
    fn who_looks_is_not_taken_for_one_that_stops_it() {
        let state = tempfile::tempdir().unwrap();
        let state = state.path();
        let one = First::new();
        let stopping = one.stopping(state, "c1");
        let is_over = AtomicBool::new(false);
        scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    is_under_way(state, "c1");
                }
            });
            let begins = || stopping.begin().is_ok_and(|lock| lock.map(ends).is_some());
            let all = (0..2000).all(|_| begins());
            is_over.store(true, Ordering::Relaxed);
            assert!(all);
        });
        one.end();
    }

    #[test]
    fn the_next_one_of_the_id_is_behind_it() {
        let state = tempfile::tempdir().unwrap();
        let state = state.path();
        let (one, two) = (First::new(), First::new());
        let (earlier, later) = (one.stopping(state, "c1"), two.stopping(state, "c1"));
        let lock = earlier.begin().unwrap().unwrap();
        let own = later.begin().unwrap().unwrap();
        assert!(later.is_behind_another());
        ends(lock);
        assert!(!later.is_behind_another() && is_under_way(state, "c1"));
        ends(own);
        assert!(!is_under_way(state, "c1"));
        one.end();
        two.end();
    }

    #[test]
    fn what_was_left_of_an_ended_one_is_removed_by_the_next() {
        let state = tempfile::tempdir().unwrap();
        let state = state.path();
        let (one, two) = (First::new(), First::new());
        let (killed, held) = (one.stopping(state, "c1"), one.stopping(state, "c2"));
        ends(killed.begin().unwrap().unwrap());
        let lock = held.begin().unwrap().unwrap();
        one.end();
        let next = two.stopping(state, "c3").begin().unwrap().unwrap();
        assert_eq!(left(state), 2);
        drop((lock, next));
        two.end();
    }
}
