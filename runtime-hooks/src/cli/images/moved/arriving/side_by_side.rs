//! Blobs of memory are fetched side by side: one connection is slower than most networks.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use stasis_memory_store::Pack;
use stasis_oci_image::{Descriptor, Elsewhere, Reference};

use super::super::pull::parts::Found;
use super::super::staging::in_part::{InPart, is_lost};
use crate::cli::command_error::MoveError;

/// As many as a registry bears of one client, and enough for 10 Gbit/s with TLS.
const CONNECTIONS: usize = 4;
const LOOK: Duration = Duration::from_millis(100);
/// Before a registry is asked again that does not answer.
const PAUSE: Duration = Duration::from_millis(500);

/// Where the blobs are.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) reference: Reference,
    /// A file with credentials.
    pub(super) authfile: Option<PathBuf>,
    /// How long nothing may come.
    pub(super) stalled: Duration,
}

/// Where they go.
#[derive(Debug)]
pub(super) struct Blobs {
    pub(super) image: PathBuf,
    /// In the order in which they are needed; each has at least its header.
    pub(super) packs: Vec<(Pack, Descriptor)>,
}

/// What the threads share.
struct Work {
    blobs: Blobs,
    source: Source,
    next: AtomicUsize,
    /// Bytes that have come.
    came: AtomicU64,
    is_over: AtomicBool,
}

/// Fetches all blobs that are not there already. Each is verified, and on disk, when this returns.
///
/// # Errors
/// [`MoveError`] of the first one that failed. Threads that wait for something that does not come
/// are left behind: their process is to end soon.
pub(super) fn fetch_all(blobs: Blobs, source: Source) -> Result<Found, MoveError> {
    let threads = CONNECTIONS.min(blobs.packs.len());
    let stalled = source.stalled;
    let work = Arc::new(Work {
        blobs,
        source,
        next: AtomicUsize::new(0),
        came: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
    });
    let (done, ended) = channel();
    for _ in 0..threads {
        let (work, done): (_, Sender<_>) = (Arc::clone(&work), done.clone());
        thread::spawn(move || {
            let _ = done.send(work.fetch());
        });
    }
    drop(done);
    let (mut left, mut seen, mut last) = (threads, 0, Instant::now());
    let mut found = Found::default();
    let result = loop {
        if left == 0 {
            break Ok(found);
        }
        match ended.recv_timeout(LOOK) {
            Ok(Ok(of_one)) => {
                left -= 1;
                found += of_one;
            }
            Ok(Err(error)) => break Err(error),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                break Err(MoveError::Stalled(work.source.reference.to_string()));
            }
        }
        let came = work.came.load(Ordering::Relaxed);
        if came > seen {
            (seen, last) = (came, Instant::now());
        } else if last.elapsed() > stalled {
            break Err(MoveError::Stalled(work.source.reference.to_string()));
        }
    };
    work.is_over.store(true, Ordering::Relaxed);
    result
}

impl Work {
    /// What one thread does.
    fn fetch(&self) -> Result<Found, MoveError> {
        let mut found = Found::default();
        let source = &self.source;
        let from = source.reference.open(source.authfile.as_deref())?;
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some((pack, blob)) = self.blobs.packs.get(number) else {
                return Ok(found);
            };
            let there = self.fetch_one(&*from, pack, blob)?;
            found.bytes += there;
            found.blobs += usize::from(there == blob.size);
        }
    }

    /// How much of it an earlier pull has brought, bytes.
    fn fetch_one(
        &self,
        from: &dyn Elsewhere,
        pack: &Pack,
        blob: &Descriptor,
    ) -> Result<u64, MoveError> {
        let path = self.blobs.image.join(pack.file_name());
        let came = |bytes| self.came(bytes);
        let mut part = InPart::open(open(&path)?, path, (pack, blob), &came)?;
        loop {
            match part.complete(from, &came) {
                // A registry that is away for a while: who waits does so as long as for any byte.
                Err(error) if is_lost(&error) && !self.is_over.load(Ordering::Relaxed) => {
                    thread::sleep(PAUSE);
                }
                complete => return complete,
            }
        }
    }

    fn came(&self, bytes: u64) -> io::Result<()> {
        if self.is_over.load(Ordering::Relaxed) {
            return Err(io::Error::other("nobody waits for it any more"));
        }
        self.came.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }
}

fn open(path: &Path) -> Result<File, MoveError> {
    let mut options = OpenOptions::new();
    // Whoever may write into the directory shall not have another file written.
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let opened = options
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open(path);
    opened.map_err(MoveError::io("open", path))
}

#[cfg(test)]
mod tests;
