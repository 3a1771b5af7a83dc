//! Resumes a blob of memory that has come in part. The earlier pull may have been killed, or the
//! machine may have lost power: so the existing part is hashed first, and one that turns out to be
//! something else is fetched from its beginning.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::mem::replace;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use stasis_memory_store::{Pack, pack_header};
use stasis_oci_image::digest::Hashed;
use stasis_oci_image::{Descriptor, OciImageError};

use crate::error::MoveError;
use crate::places::Elsewhere;

/// Bytes of a blob that are read and written at a time.
const BUFFER: usize = 1 << 20;

/// Receives how many bytes have come, from wherever; an error ends the fetch.
pub(crate) type Came<'c> = &'c dyn Fn(u64) -> io::Result<()>;

/// The file of a pack, and its blob. Others may read the file meanwhile: it gets no shorter, unless
/// it cannot be this pack's.
pub(crate) struct InPart<'b> {
    file: File,
    path: PathBuf,
    /// The blob's offset in it.
    begins: u64,
    blob: &'b Descriptor,
    hears: Came<'b>,
    /// The hash of the bytes that have come.
    came: Hashed<()>,
    /// Bytes that existed at first and are still used.
    before: u64,
}

impl<'b> InPart<'b> {
    /// Opens the file, and hashes the part that exists.
    pub(crate) fn open(
        path: PathBuf,
        (pack, blob): (&Pack, &'b Descriptor),
        hears: Came<'b>,
    ) -> Result<Self, MoveError> {
        let mut file = begin(&path, pack)?;
        let begins = pack_header(pack).len() as u64;
        let hashed = hash(&mut file, begins, blob.size, hears);
        let hashed = hashed.map_err(MoveError::io("read", &path))?;
        Ok(Self {
            before: hashed.so_far().1,
            came: hashed,
            file,
            path,
            begins,
            blob,
            hears,
        })
    }

    /// Fetches the missing part. All of it is verified and on disk then. Returns how many bytes of
    /// the blob existed before. May be tried again. If it fails, the fetched part stays.
    pub(crate) fn complete(&mut self, from: &dyn Elsewhere) -> Result<u64, MoveError> {
        loop {
            self.fetch(from)?;
            let all = replace(&mut self.came, Hashed::new(()));
            match (self.blob.check(all), replace(&mut self.before, 0)) {
                (Ok(()), before) => {
                    let synced = self.file.sync_all();
                    synced.map_err(MoveError::io("sync", &self.path))?;
                    return Ok(before);
                }
                // The existing part may not have been the blob's.
                (Err(_), 1..) => {}
                (Err(error), 0) => return Err(error.into()),
            }
        }
    }

    fn fetch(&mut self, from: &dyn Elsewhere) -> Result<(), MoveError> {
        let (_, there) = self.came.so_far();
        if there == self.blob.size {
            return Ok(());
        }
        let inner = from.reader(self.blob, there)?;
        let failed = || MoveError::io("write", &self.path);
        let sought = self.file.seek(SeekFrom::Start(self.begins + there));
        sought.map_err(failed())?;
        let contents = replace(&mut self.came, Hashed::new(()));
        let contents = contents.with(Counted {
            inner,
            came: self.hears,
        });
        let mut contents = BufReader::with_capacity(BUFFER, contents);
        let copied = io::copy(&mut contents, &mut self.file);
        self.came = contents.into_inner().with(());
        if copied.is_err() && self.file.stream_position().ok() != Some(self.end()) {
            // Some hashed bytes were not written.
            (self.came, self.before) = (Hashed::new(()), 0);
        }
        copied.map(drop).map_err(failed())
    }

    /// Returns the end of the fetched part in the file.
    fn end(&self) -> u64 {
        self.begins + self.came.so_far().1
    }
}

/// Returns whether the connection failed, so that another try may go on.
pub(crate) fn is_lost(error: &MoveError) -> bool {
    matches!(error, MoveError::Elsewhere(OciImageError::Registry { .. }))
}

/// Opens or makes the file of a pack; one that cannot be this pack's is cut to the header.
pub(crate) fn begin(path: &Path, pack: &Pack) -> Result<File, MoveError> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).mode(0o600);
    // A user who may write into the directory must not redirect the write to another file.
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let opened = options.custom_flags(flags).open(path);
    let begun = opened.and_then(|mut file| {
        let (header, bytes) = (pack_header(pack), file.metadata()?.len());
        let mut first = vec![0; header.len()];
        let fits = (header.len() as u64..=pack.bytes).contains(&bytes);
        if fits {
            file.read_exact_at(&mut first, 0)?;
        }
        if !fits || first != header {
            file.set_len(header.len() as u64)?;
            file.write_all(&header)?;
        }
        Ok(file)
    });
    begun.map_err(MoveError::io("make", path))
}

/// Hashes a file's contents from this offset on.
fn hash(file: &mut File, from: u64, most: u64, came: Came<'_>) -> io::Result<Hashed<()>> {
    file.seek(SeekFrom::Start(from))?;
    let inner = file.take(most);
    let contents = Hashed::new(Counted { inner, came });
    let mut contents = BufReader::with_capacity(BUFFER, contents);
    io::copy(&mut contents, &mut io::sink())?;
    Ok(contents.into_inner().with(()))
}

/// Reads, and reports how much.
struct Counted<'c, R> {
    inner: R,
    came: Came<'c>,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        (self.came)(read as u64)?;
        Ok(read)
    }
}
