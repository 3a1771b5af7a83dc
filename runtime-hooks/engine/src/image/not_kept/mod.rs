//! `stasis-not-kept.img`: attributes of a container that CRIU does not keep.
//!
//! The file is written while CRIU has all tasks stopped, and its content put back once CRIU has
//! restored all, before any of them runs. Only unusual attributes are in it:
//!
//! * where and how threads run ([`stasis_linux::thread`]),
//! * which System V segments are marked as removed (`process/removed_segments.rs`),
//! * which mounted directories had files (`image/mounted.rs`): these are looked at before CRIU
//!   restores anything.
//!
//! Periodic timers that had expired unread (`process/expired_timers.rs`, `itimers.rs`) are found as
//! CRIU restores them.

mod itimers;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use stasis_host::json_record;
use stasis_linux::file::{self, Access, Durability};
use stasis_linux::process::expired_timers::start_expired_timers;
use stasis_linux::process::removed_segments::{remove_segments, removed_segments};
use stasis_linux::procfs::processes;
use stasis_linux::thread::{Fact, Facts, Usual, for_each_of_tree};
use stasis_linux::tree::descendants;

use crate::image::mounted::MountedFiles;

/// The file's name in an image directory: one that a manifest lists, with its hash.
pub(crate) const FILE_NAME: &str = "stasis-not-kept.img";
/// The version that is written, and the only one that is read.
const VERSION: u32 = 2;
/// Threads, or segments: half of what a machine has numbers for by default.
const MOST: usize = 1 << 14;
/// [`MOST`] fit, each with every other of a thousand CPUs.
const MAX_BYTES: u64 = 64 << 20;

/// The unusual attributes of a container.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotKept {
    version: u32,
    /// The threads with unusual attributes, by their numbers in the container.
    threads: BTreeMap<i32, Facts>,
    /// The number of further threads.
    left_out: usize,
    /// The segments, by their numbers in the container's IPC namespace.
    removed_segments: Vec<i32>,
    /// The directories that were mounted from outside and had files.
    pub mounted: Vec<MountedFiles>,
}

/// The threads that have not got one of the facts back.
struct Lacking {
    count: usize,
    first: i32,
}

impl NotKept {
    /// Reads the attributes of the process `init` and its descendants, which stand still.
    pub(crate) fn of_tree(init: i32, mounted: Vec<MountedFiles>) -> io::Result<Self> {
        let usual = Usual::of(init);
        let (mut threads, mut left_out) = (BTreeMap::new(), 0);
        for_each_of_tree(init, |thread| {
            let facts = Facts::of(thread, &usual)?;
            match (facts.is_empty(), threads.len()) {
                (true, _) => {}
                (false, ..MOST) => drop(threads.insert(thread.inside, facts)),
                (false, _) => left_out += 1,
            }
            Ok(())
        })?;
        let mut removed_segments = removed_segments(init)?;
        removed_segments.truncate(MOST);
        Ok(Self {
            version: VERSION,
            threads,
            left_out,
            removed_segments,
            mounted,
        })
    }

    /// Writes it into an image directory, for all users that may read CRIU's files.
    pub(crate) fn write(&self, image: &Path) -> io::Result<()> {
        let (path, text) = (image.join(FILE_NAME), serde_json::to_vec(self)?);
        file::replace(&path, &text, Access::Public, Durability::Volatile)
    }

    /// Reads the file of an image directory; `None` if the image has none.
    ///
    /// # Errors
    /// An I/O error; [`io::ErrorKind::InvalidData`] for anything that this version did not write.
    pub fn read(image: &Path) -> io::Result<Option<Self>> {
        let Some(facts) = json_record::read::<Self>(&image.join(FILE_NAME), MAX_BYTES)? else {
            return Ok(None);
        };
        let most = facts.threads.len().max(facts.removed_segments.len());
        let most = most.max(facts.mounted.len());
        let what = match (facts.version, most) {
            (VERSION, ..=MOST) => return Ok(Some(facts)),
            (VERSION, _) => "it lists more than there can be".to_owned(),
            (other, _) => format!("its version is {other}, and this is {VERSION}"),
        };
        Err(io::Error::new(io::ErrorKind::InvalidData, what))
    }

    /// Puts it back into a restored container, which stands still. Returns notes of failures.
    pub(crate) fn put_back(&self, image: &Path, init: i32) -> Vec<String> {
        let put_back = [
            ("threads", self.put_back_threads(image, init)),
            ("timers (timerfd)", start_timers(init)),
            (
                "removed System V segments",
                remove_segments(init, &self.removed_segments).map(|()| Vec::new()),
            ),
        ];
        let notes = put_back.into_iter().map(|(what, notes)| {
            let failed = |error| vec![format!("not all was put back of {what}: {error}")];
            notes.unwrap_or_else(failed)
        });
        notes.flatten().collect()
    }

    fn put_back_threads(&self, image: &Path, init: i32) -> io::Result<Vec<String>> {
        let usual = Facts::default();
        let mut lacking: BTreeMap<Fact, Lacking> = BTreeMap::new();
        let mut silent = 0;
        for_each_of_tree(init, |thread| {
            if thread.is_first() && itimers::had_expired(image, thread.inside) {
                silent += 1;
            }
            let facts = self.threads.get(&thread.inside).unwrap_or(&usual);
            for fact in facts.give(thread) {
                let none = || Lacking {
                    count: 0,
                    first: thread.inside,
                };
                lacking.entry(fact).or_insert_with(none).count += 1;
            }
            Ok(())
        })?;
        let left_out = (self.left_out > 0).then(|| {
            let count = self.left_out;
            format!("of {count} more threads the image does not say on which CPUs and how they run")
        });
        let silent = (silent > 0).then(|| {
            format!(
                "{silent} of the processes have a timer (setitimer) that had expired, and whose \
                 signal was not taken yet: it comes once, and not again until it is set again"
            )
        });
        let lacking = lacking.into_iter().map(|(fact, Lacking { count, first })| {
            format!(
                "{fact}: {count} of the threads do not have that of the checkpoint, which this \
                 machine or the container's cgroup does not allow (the first is {first} in the \
                 container)"
            )
        });
        Ok(left_out.into_iter().chain(silent).chain(lacking).collect())
    }
}

fn start_timers(init: i32) -> io::Result<Vec<String>> {
    for process in descendants(init, processes()?)? {
        start_expired_timers(process)?;
    }
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_read_is_what_was_written_or_an_error() {
        let image = tempfile::tempdir().unwrap();
        assert!(NotKept::read(image.path()).unwrap().is_none());
        let own = std::process::id().cast_signed();
        let facts = NotKept::of_tree(own, Vec::new()).unwrap();
        facts.write(image.path()).unwrap();
        let again = NotKept::read(image.path()).unwrap().unwrap();
        assert_eq!(again.threads, facts.threads);
        for text in [
            "",
            "{}",
            r#"{"version":1,"threads":{},"left_out":0,"removed_segments":[],"mounted":[]}"#,
            r#"{"version":2,"threads":{"1":{"nice":1}},"left_out":0,"removed_segments":[],"mounted":[]}"#,
            r#"{"version":2,"threads":{"x":{}},"left_out":0,"removed_segments":[],"mounted":[]}"#,
        ] {
            fs::write(image.path().join(FILE_NAME), text).unwrap();
            let error = NotKept::read(image.path()).unwrap_err();
            assert_ne!(error.kind(), io::ErrorKind::NotFound, "{text}");
        }
    }

    #[test]
    fn what_no_machine_has_is_noted_once_for_all_threads() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = child.id().cast_signed();
        let text = format!(
            r#"{{"version":2,"threads":{{"{pid}":{{"cpus":"1023","oom_score_adj":500}}}},"left_out":3,"removed_segments":[],"mounted":[]}}"#
        );
        let facts: NotKept = serde_json::from_str(&text).unwrap();
        let notes = facts.put_back(Path::new("/nonexistent"), pid);
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].contains("3 more threads"), "{notes:?}");
        assert!(notes[1].contains("sched_setaffinity"), "{notes:?}");
        let score = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
        assert_eq!(score, "500\n");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
