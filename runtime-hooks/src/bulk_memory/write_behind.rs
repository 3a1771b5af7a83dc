//! The copy to disk of bulk memory in the tier `ram`, made after the checkpoint has returned.
//!
//! The copy is written to a partial directory and renamed when all of it is on disk, so a directory
//! with the final name is complete. Packs that an earlier checkpoint has on disk are linked instead
//! of copied.

mod copy_file;

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Instant, SystemTime};

use serde::{Deserialize, Serialize};
use stasis_linux::file;
use stasis_memory_store::{ImageId, Tier};

use crate::bulk_memory::request;
use crate::bulk_memory::stores::{self, PARTIAL, Stores};
use crate::bulk_memory::write_behind::copy_file::copy_file;
use crate::context::Context;
use crate::error::io_kind::of_io;
use crate::error::kind::{Diagnosis, Kind, State};
use crate::error::operations_log::{self, Failed};
use crate::host::respawn;
use crate::operation::timeline::Timeline;

/// The first argument of a process that makes a copy.
const VERB: &str = "stasis-write-behind";
/// More threads do not make disks faster.
const MOST_THREADS: usize = 4;

/// A copy to make.
#[derive(Debug, Serialize, Deserialize)]
pub struct WriteBehind {
    image_id: ImageId,
    container: String,
    from: PathBuf,
    disk: PathBuf,
    log_dir: PathBuf,
    threads: usize,
}

/// The bytes of a copy.
#[derive(Debug, Default, PartialEq, Eq)]
struct Copied {
    bytes: u64,
    linked: u64,
}

impl WriteBehind {
    pub(crate) fn new(context: &Context, container: &str, image_id: ImageId) -> Self {
        let stores = Stores::of(&context.settings);
        Self {
            image_id,
            container: container.to_owned(),
            from: stores.ram.join(image_id.to_string()),
            disk: stores.disk,
            log_dir: context.settings.paths.log_dir.clone(),
            threads: request::threads(context, Tier::Ram).min(MOST_THREADS),
        }
    }

    /// Starts a process that makes the copy.
    ///
    /// # Errors
    /// The I/O error.
    pub(crate) fn start(&self) -> io::Result<()> {
        respawn::start(VERB, self).map(|_pid| ())
    }

    /// Reads the copy that this process was started for, if it was.
    #[must_use]
    pub fn of_this_process() -> Option<Self> {
        respawn::job_of(VERB, c"stasis-durable")
    }

    /// Makes the copy, and writes a line to `operations.log`.
    ///
    /// # Errors
    /// The I/O error; the partial copy is removed.
    pub fn carry_out(&self) -> io::Result<()> {
        let (began, start) = (SystemTime::now(), Instant::now());
        let copied = self.copy();
        let mut timeline = Timeline::default();
        if let Ok(Copied { bytes, linked }) = &copied {
            timeline.add_part("copy", start.elapsed(), Some(*bytes));
            timeline.note(format!(
                "bulk memory {} is on disk: {} MiB written, {} MiB there before",
                self.image_id,
                bytes >> 20,
                linked >> 20
            ));
        }
        let failure = copied.as_ref().err().map(|error| {
            let id = self.image_id;
            let text = format!(
                "bulk memory {id} is not on disk and is lost when this machine restarts: {error}"
            );
            let kind = of_io(error, Kind::ImageDirectory);
            Failed::new(&text, Diagnosis::new(kind, State::Unharmed))
        });
        let container = &self.container;
        operations_log::write_afterwards(
            &self.log_dir,
            "durable",
            container,
            began,
            &timeline,
            failure,
        );
        copied.map(|_| ())
    }

    fn copy(&self) -> io::Result<Copied> {
        let partial = self.disk.join(format!("{}.{PARTIAL}", self.image_id));
        stores::prepare(&self.disk)?;
        DirBuilder::new().mode(0o700).create(&partial)?;
        let copied = self.copy_into(&partial).and_then(|copied| {
            file::sync_directory(&partial)?;
            fs::rename(&partial, self.disk.join(self.image_id.to_string()))?;
            file::sync_directory(&self.disk)?;
            Ok(copied)
        });
        if copied.is_err() {
            let _ = fs::remove_dir_all(&partial);
        }
        copied
    }

    fn copy_into(&self, partial: &Path) -> io::Result<Copied> {
        let mut linked = 0;
        let mut to_copy = Vec::new();
        for (name, path) in stores::names_in(&self.from)? {
            match self.link(&name, &path, partial)? {
                Some(bytes) => linked += bytes,
                None => to_copy.push((path, partial.join(name))),
            }
        }
        let next = AtomicUsize::new(0);
        let work = || -> io::Result<u64> {
            let mut bytes = 0;
            while let Some((from, to)) = to_copy.get(next.fetch_add(1, Ordering::Relaxed)) {
                bytes += copy_file(from, to)?;
            }
            Ok(bytes)
        };
        let threads = self.threads.clamp(1, to_copy.len().max(1));
        let bytes = thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let joined = workers.into_iter().map(|worker| {
                let panicked = |_| Err(io::Error::other("a thread that copies panicked"));
                worker.join().unwrap_or_else(panicked)
            });
            // Join all threads, also after a failure.
            let results: Vec<io::Result<u64>> = joined.collect();
            results.into_iter().sum::<io::Result<u64>>()
        })?;
        Ok(Copied { bytes, linked })
    }

    /// Links a pack that another checkpoint already has on disk. A pack's name contains the random
    /// id of the checkpoint that made it, so it is unique.
    fn link(&self, name: &str, path: &Path, partial: &Path) -> io::Result<Option<u64>> {
        if !name.ends_with(".pack") {
            return Ok(None);
        }
        let bytes = path.metadata()?.len();
        for (id, directory) in stores::names_in(&self.disk)? {
            let there = directory.join(name);
            let is_whole = id.parse::<ImageId>().is_ok()
                && there.metadata().is_ok_and(|there| there.len() == bytes);
            // The link fails for a pack that is being removed; that pack is copied.
            if is_whole && fs::hard_link(&there, partial.join(name)).is_ok() {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
