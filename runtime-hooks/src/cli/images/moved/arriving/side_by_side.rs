//! Blobs of memory are fetched side by side: one connection is slower than most networks.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use stasis_memory_store::{Pack, pack_header};
use stasis_oci_image::digest::Hashed;
use stasis_oci_image::{Descriptor, Elsewhere, Reference};

use super::super::pull::whole;
use super::super::staging::BUFFER;
use crate::cli::command_error::MoveError;

/// As many as a registry bears of one client, and enough for 10 Gbit/s with TLS.
const CONNECTIONS: usize = 4;
const LOOK: Duration = Duration::from_millis(100);

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

/// What an earlier pull has brought.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Found {
    pub(super) blobs: usize,
    pub(super) bytes: u64,
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
                found.blobs += of_one.blobs;
                found.bytes += of_one.bytes;
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
            if self.was_there(pack, blob)? {
                found.blobs += 1;
                found.bytes += blob.size;
            } else {
                self.fetch_one(&*from, pack, blob)?;
            }
        }
    }

    fn fetch_one(
        &self,
        from: &dyn Elsewhere,
        pack: &Pack,
        blob: &Descriptor,
    ) -> Result<(), MoveError> {
        let path = self.blobs.image.join(pack.file_name());
        let mut file = open(&path)?;
        let contents = Hashed::new(Counted {
            inner: from.reader(blob)?,
            work: self,
        });
        let mut contents = BufReader::with_capacity(BUFFER, contents);
        let written = begin_again(&mut file, pack);
        let written = written.and_then(|()| io::copy(&mut contents, &mut file));
        written.map_err(MoveError::io("write", &path))?;
        whole(blob, contents.into_inner())?;
        file.sync_all().map_err(MoveError::io("sync", &path))
    }

    /// Whether an earlier pull has brought all of it.
    fn was_there(&self, pack: &Pack, blob: &Descriptor) -> Result<bool, MoveError> {
        let path = self.blobs.image.join(pack.file_name());
        let mut file = open(&path)?;
        let read = self.is_whole(&mut file, pack, blob);
        read.map_err(MoveError::io("read", &path))
    }

    fn is_whole(&self, file: &mut File, pack: &Pack, blob: &Descriptor) -> io::Result<bool> {
        if file.metadata()?.len() != pack.bytes {
            return Ok(false);
        }
        let mut first = vec![0; pack_header(pack).len()];
        file.seek(SeekFrom::Start(0))?;
        file.read_exact(&mut first)?;
        if first != pack_header(pack) {
            return Ok(false);
        }
        let mut contents = Hashed::new(Counted {
            inner: &mut *file,
            work: self,
        });
        io::copy(&mut contents, &mut io::sink())?;
        let (digest, bytes, _) = contents.end();
        // Its writer may have been killed before it was on disk.
        file.sync_all()?;
        Ok((digest, bytes) == (blob.digest, blob.size))
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

/// The header alone stays.
fn begin_again(file: &mut File, pack: &Pack) -> io::Result<()> {
    let header = pack_header(pack);
    file.set_len(header.len() as u64)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&header)
}

/// Reads, and says that something comes.
struct Counted<'w, R> {
    inner: R,
    work: &'w Work,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.work.is_over.load(Ordering::Relaxed) {
            return Err(io::Error::other("nobody waits for it any more"));
        }
        let read = self.inner.read(into)?;
        self.work.came.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}
