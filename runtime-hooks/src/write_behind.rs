//! The copy to disk of what a checkpoint put into memory (tier `ram`), made when its caller has been answered.
//!
//! It is made beside its place and renamed when all of it is on disk, so what has its name is whole. What an earlier
//! checkpoint has there already is linked and not copied.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Instant, SystemTime};

use rustix::fs::{FallocateFlags, OFlags, fallocate, fcntl_getfl, fcntl_setfl};
use serde::{Deserialize, Serialize};
use stasis_memory_store::{Buffer, ImageId, PAGE, Tier};

use crate::detached;
use crate::engine::Engine;
use crate::memory_order;
use crate::memory_stores::{self, PARTIAL, Stores};
use crate::operation_log;
use crate::timeline::Timeline;

/// The first argument of such a process.
const VERB: &str = "stasis-write-behind";
/// Disks have no use for more.
const MOST_THREADS: usize = 4;

/// A copy that is to be made.
#[derive(Debug, Serialize, Deserialize)]
pub struct WriteBehind {
    image_id: ImageId,
    container: String,
    from: PathBuf,
    disk: PathBuf,
    log_dir: PathBuf,
    threads: usize,
}

/// How much there was to do.
#[derive(Debug, Default, PartialEq, Eq)]
struct Copied {
    bytes: u64,
    linked: u64,
}

impl WriteBehind {
    pub(crate) fn new(engine: &Engine, container: &str, image_id: ImageId) -> Self {
        let stores = Stores::of(&engine.settings);
        Self {
            image_id,
            container: container.to_owned(),
            from: stores.ram.join(image_id.to_string()),
            disk: stores.disk,
            log_dir: engine.settings.paths.log_dir.clone(),
            threads: memory_order::threads(engine, Tier::Ram).min(MOST_THREADS),
        }
    }

    /// Starts a process that makes it.
    ///
    /// # Errors
    /// What the kernel said.
    pub(crate) fn start(&self) -> io::Result<()> {
        detached::start(VERB, self).map(|_pid| ())
    }

    /// The copy that this process was started for, if it was.
    #[must_use]
    pub fn of_this_process() -> Option<Self> {
        detached::charge_of(VERB, c"stasis-durable")
    }

    /// Makes it, and says so in `operations.log`.
    ///
    /// # Errors
    /// What the kernel said; nothing is left of it then.
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
        let error = copied.as_ref().err().map(|error| {
            let id = self.image_id;
            format!("bulk memory {id} is not on disk, and lost with this machine's memory: {error}")
        });
        let container = &self.container;
        operation_log::write_afterwards(
            &self.log_dir,
            "durable",
            container,
            began,
            &timeline,
            error,
        );
        copied.map(|_| ())
    }

    fn copy(&self) -> io::Result<Copied> {
        let partial = self.disk.join(format!("{}.{PARTIAL}", self.image_id));
        memory_stores::prepare(&self.disk)?;
        DirBuilder::new().mode(0o700).create(&partial)?;
        let copied = self.copy_into(&partial).and_then(|copied| {
            File::open(&partial)?.sync_all()?;
            fs::rename(&partial, self.disk.join(self.image_id.to_string()))?;
            File::open(&self.disk)?.sync_all()?;
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
        for (name, path) in memory_stores::names_in(&self.from)? {
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
            // All are waited for, also after a failure.
            let results: Vec<io::Result<u64>> = joined.collect();
            results.into_iter().sum::<io::Result<u64>>()
        })?;
        Ok(Copied { bytes, linked })
    }

    /// Links a pack that is on disk as part of another checkpoint. Its name has the random name of the checkpoint that made it,
    /// so there is no other of that name.
    fn link(&self, name: &str, path: &Path, partial: &Path) -> io::Result<Option<u64>> {
        if !name.ends_with(".pack") {
            return Ok(None);
        }
        let bytes = path.metadata()?.len();
        for (id, directory) in memory_stores::names_in(&self.disk)? {
            let there = directory.join(name);
            let is_whole = id.parse::<ImageId>().is_ok()
                && there.metadata().is_ok_and(|there| there.len() == bytes);
            // One that is being removed is copied.
            if is_whole && fs::hard_link(&there, partial.join(name)).is_ok() {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }
}

/// Copies past the page cache, where the file system can do that; on disk when it returns.
fn copy_file(from: &Path, to: &Path) -> io::Result<u64> {
    let mut source = File::open(from)?;
    let bytes = source.metadata()?.len();
    let mut target = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(to)?;
    if bytes > 0 {
        match fallocate(&target, FallocateFlags::empty(), 0, bytes) {
            Err(error) if error != rustix::io::Errno::OPNOTSUPP => return Err(error.into()),
            _ => {}
        }
    }
    set_direct(&target, Cache::Past)?;
    let mut buffer = Buffer::new();
    let mut copied = 0;
    loop {
        let read = read_block(&mut source, buffer.as_mut_slice())?;
        if read == 0 {
            break;
        }
        copied += read as u64;
        // Whole pages only; what is too much is cut off below.
        let padded = read.next_multiple_of(PAGE);
        buffer.as_mut_slice()[read..padded].fill(0);
        write_block(&mut target, &buffer.as_slice()[..padded])?;
    }
    target.set_len(copied)?;
    target.sync_all()?;
    Ok(copied)
}

fn read_block(source: &mut File, into: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    while read < into.len() {
        match source.read(&mut into[read..]) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

fn write_block(target: &mut File, block: &[u8]) -> io::Result<()> {
    match target.write_all(block) {
        // Some file systems say so only now.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            set_direct(target, Cache::Through)?;
            target.write_all(block)
        }
        written => written,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Cache {
    Past,
    Through,
}

/// Past the page cache, if the file system can do that, or through it.
fn set_direct(file: &File, cache: Cache) -> io::Result<()> {
    let flags = fcntl_getfl(file)?;
    match cache {
        Cache::Past => {
            let _ = fcntl_setfl(file, flags | OFlags::DIRECT);
        }
        Cache::Through => fcntl_setfl(file, flags - OFlags::DIRECT)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_stores::tests::{origin, store};

    fn of(directory: &Path) -> WriteBehind {
        WriteBehind {
            image_id: ImageId::new(2),
            container: "c1".into(),
            from: directory.join("ram").join(ImageId::new(2).to_string()),
            disk: directory.join("disk"),
            log_dir: directory.join("log"),
            threads: 3,
        }
    }

    #[test]
    fn all_is_copied_and_what_is_there_is_linked() {
        use std::os::unix::fs::MetadataExt;
        let directory = tempfile::tempdir().unwrap();
        let ram = directory.path().join("ram");
        fs::create_dir(&ram).unwrap();
        let from = store(&ram, 2, &origin("c1", 2));
        let large: Vec<u8> = (0..251).cycle().take((9 << 20) + 77).collect();
        let names = [2, 1].map(|id| format!("stasis-memory-{}-9.pack", ImageId::new(id)));
        fs::write(from.join(&names[0]), &large).unwrap();
        fs::write(from.join(&names[1]), "earlier").unwrap();
        let copy = of(directory.path());
        fs::create_dir(&copy.disk).unwrap();
        let earlier = store(&copy.disk, 1, &origin("c1", 1));
        fs::write(earlier.join(&names[1]), "earlier").unwrap();

        copy.carry_out().unwrap();
        let to = copy.disk.join(ImageId::new(2).to_string());
        assert_eq!(fs::read(to.join(&names[0])).unwrap(), large);
        assert_eq!(to.join(&names[1]).metadata().unwrap().nlink(), 2);
        let count = |path: &Path| fs::read_dir(path).unwrap().count();
        assert_eq!(count(&from), count(&to));
        let log = fs::read_to_string(copy.log_dir.join(operation_log::FILE_NAME)).unwrap();
        let line: serde_json::Value = serde_json::from_str(&log).unwrap();
        assert_eq!(line["operation"], "durable");
        assert!(line["phases"][0]["seconds"].as_f64().unwrap() > 0.0);
    }

    #[test]
    fn a_copy_that_fails_leaves_nothing_and_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let copy = of(directory.path());
        fs::create_dir_all(copy.from.join("a-directory")).unwrap();
        assert!(copy.carry_out().is_err());
        assert_eq!(fs::read_dir(&copy.disk).unwrap().count(), 0);
        let log = fs::read_to_string(copy.log_dir.join(operation_log::FILE_NAME)).unwrap();
        assert!(log.contains("is not on disk"), "{log}");
    }
}
