//! One copy of a store to disk.
//!
//! It is written to the partial directory that records it as pending, and renamed when all of it is
//! on disk, so a directory with the final name is complete. A file, too, gets its name when all of
//! it is on disk: what a copy that was killed has left is not written again. Packs that an earlier
//! checkpoint has on disk are linked.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rustix::fs::statvfs;
use stasis_linux::file;
use stasis_memory_store::{ImageId, ORIGIN_FILE, STORE_INDEX_FILE, is_pack_name};

use super::copy_file::copy_file;
use crate::bulk_memory::in_use;
use crate::bulk_memory::lost::keep_origin_alone;
use crate::bulk_memory::pending::{self, Pending};
use crate::bulk_memory::stores::{self, Stores};

/// A copy to make.
#[derive(Debug)]
pub(crate) struct Copy<'a> {
    pub(crate) pending: &'a Pending,
    pub(crate) stores: &'a Stores,
    pub(crate) threads: usize,
}

/// The bytes of a copy.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Copied {
    /// What was written.
    pub(crate) bytes: u64,
    /// What was linked, or left by a copy that was killed.
    pub(crate) there: u64,
}

/// A file to copy.
struct Task {
    from: PathBuf,
    to: PathBuf,
    bytes: u64,
}

impl Copy<'_> {
    /// Makes the copy, or what is left of it to do.
    ///
    /// # Errors
    /// The I/O error; what is on disk stays for the next try, unless the disk is full.
    pub(crate) fn make(&self) -> io::Result<Copied> {
        let (id, disk) = (self.pending.image_id, &self.stores.disk);
        let Some(_in_use) = in_use::hold(&self.pending.from)? else {
            return Err(io::ErrorKind::NotFound.into());
        };
        pending::record(self.stores, id, &self.pending.origin)?;
        let partial = self.stores.partial_of(id);
        let copied = self.copy_into(&partial);
        if let Err(error) = &copied
            && error.kind() == io::ErrorKind::StorageFull
        {
            // Nobody else shall have to do without the room meanwhile.
            let _ = keep_origin_alone(&partial);
        }
        let copied = copied?;
        file::sync_directory(&partial)?;
        fs::rename(&partial, disk.join(id.to_string()))?;
        file::sync_directory(disk)?;
        Ok(copied)
    }

    fn copy_into(&self, partial: &Path) -> io::Result<Copied> {
        let wanted = stores::names_in(&self.pending.from)?;
        if !wanted.iter().any(|(name, _)| name == STORE_INDEX_FILE) {
            // It has been removed meanwhile.
            return Err(io::ErrorKind::NotFound.into());
        }
        for (name, path) in stores::names_in(partial)? {
            if !wanted.iter().any(|(wanted, _)| *wanted == name) {
                // The part of a file that a killed copy had begun.
                fs::remove_file(path)?;
            }
        }
        let mut there = 0;
        let mut tasks = Vec::new();
        for (name, from) in wanted.into_iter().filter(|(name, _)| name != ORIGIN_FILE) {
            let (bytes, to) = (from.metadata()?.len(), partial.join(&name));
            if to.metadata().is_ok_and(|to| to.len() == bytes) || self.link(&name, &to, bytes)? {
                there += bytes;
            } else {
                tasks.push(Task { from, to, bytes });
            }
        }
        check_room(partial, tasks.iter().map(|task| task.bytes).sum())?;
        let bytes = self.copy_files(&tasks)?;
        Ok(Copied { bytes, there })
    }

    fn copy_files(&self, tasks: &[Task]) -> io::Result<u64> {
        let next = AtomicUsize::new(0);
        let work = || -> io::Result<u64> {
            let mut bytes = 0;
            while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
                let staged = file::staged(&task.to)?;
                bytes += copy_file(&task.from, &staged)?;
                fs::rename(&staged, &task.to)?;
            }
            Ok(bytes)
        };
        let threads = self.threads.clamp(1, tasks.len().max(1));
        thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let joined = workers.into_iter().map(|worker| {
                let panicked = |_| Err(io::Error::other("a thread that copies panicked"));
                worker.join().unwrap_or_else(panicked)
            });
            // Join all threads, also after a failure.
            let results: Vec<io::Result<u64>> = joined.collect();
            results.into_iter().sum()
        })
    }

    /// Links a pack that another checkpoint already has on disk. A pack's name contains the random
    /// id of the checkpoint that made it, so it is unique.
    fn link(&self, name: &str, to: &Path, bytes: u64) -> io::Result<bool> {
        if !is_pack_name(name) {
            return Ok(false);
        }
        for (id, directory) in stores::names_in(&self.stores.disk)? {
            let there = directory.join(name);
            let is_whole = id.parse::<ImageId>().is_ok()
                && there.metadata().is_ok_and(|there| there.len() == bytes);
            // The link fails for a pack that is being removed; that pack is copied.
            if is_whole && fs::hard_link(&there, to).is_ok() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// A disk without room is found full before it is.
fn check_room(directory: &Path, needed: u64) -> io::Result<()> {
    let status = statvfs(directory)?;
    let free = status.f_bavail.saturating_mul(status.f_frsize);
    if free < needed {
        let (needed, free) = (needed >> 20, free >> 20);
        let text = format!("{needed} MiB are needed on the disk, which has {free} MiB free");
        return Err(io::Error::new(io::ErrorKind::StorageFull, text));
    }
    Ok(())
}
