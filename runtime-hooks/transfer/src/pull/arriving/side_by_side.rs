//! Fetches blobs of memory side by side: one connection is slower than most networks.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use stasis_memory_store::Pack;
use stasis_oci_image::{Descriptor, Reference};

use crate::error::MoveError;
use crate::places::{Elsewhere, open};
use crate::pull::parts::AlreadyFetched;
use crate::pull::staging::in_part::{InPart, is_lost};

/// Connections that a registry bears from one client, and enough for 10 Gbit/s with TLS.
const CONNECTIONS: usize = 4;
const LOOK: Duration = Duration::from_millis(100);
/// The pause before a registry that does not answer is asked again.
const PAUSE: Duration = Duration::from_millis(500);

/// The blobs' place.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) reference: Reference,
    /// A file with credentials.
    pub(super) authfile: Option<PathBuf>,
    /// The longest time without data.
    pub(super) stalled: Duration,
}

/// State shared by the threads.
struct Work {
    image: PathBuf,
    /// In the order in which they are needed; each has at least its header.
    packs: Vec<(Pack, Descriptor)>,
    source: Source,
    next: AtomicUsize,
    /// Bytes that have arrived.
    came: AtomicU64,
    is_over: AtomicBool,
}

/// Fetches all blobs that are missing. Each is verified, and on disk, when this returns. If one
/// fails, threads that wait for data that does not come are left behind: their process is to end
/// soon.
pub(super) fn fetch_all(
    image: PathBuf,
    packs: Vec<(Pack, Descriptor)>,
    source: Source,
) -> Result<AlreadyFetched, MoveError> {
    let threads = CONNECTIONS.min(packs.len());
    let stalled = source.stalled;
    let work = Arc::new(Work {
        image,
        packs,
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
    let mut found = AlreadyFetched::default();
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
    /// Fetches blobs, as one of the threads.
    fn fetch(&self) -> Result<AlreadyFetched, MoveError> {
        let mut found = AlreadyFetched::default();
        let source = &self.source;
        let from = open(&source.reference, source.authfile.as_deref())?;
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some((pack, blob)) = self.packs.get(number) else {
                return Ok(found);
            };
            let there = self.fetch_one(&*from, pack, blob)?;
            found.bytes += there;
            found.blobs += usize::from(there == blob.size);
        }
    }

    /// Fetches a blob; returns the bytes of it that an earlier pull has brought.
    fn fetch_one(
        &self,
        from: &dyn Elsewhere,
        pack: &Pack,
        blob: &Descriptor,
    ) -> Result<u64, MoveError> {
        let path = self.image.join(pack.file_name());
        let came = |bytes| self.came(bytes);
        let mut part = InPart::open(path, (pack, blob), &came)?;
        loop {
            match part.complete(from) {
                // A registry that is away for a while is waited for as long as for any byte.
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

#[cfg(test)]
mod tests;
