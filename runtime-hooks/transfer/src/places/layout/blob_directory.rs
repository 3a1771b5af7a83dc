//! The directory of a layout's blobs, held open: no link leads us elsewhere.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, flock, fstat, fsync, open, openat,
    renameat, unlinkat,
};
use rustix::io::Errno;
use stasis_oci_image::OciImageError;

/// A blob that is being written; who writes it has it locked.
const NEW: &str = ".stasis-new-";

/// The directory.
#[derive(Debug)]
pub(super) struct BlobDirectory {
    pub(super) path: PathBuf,
    directory: File,
}

impl BlobDirectory {
    pub(super) fn open(path: &Path) -> Result<Self, OciImageError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let parent = path.parent().unwrap_or(path);
        let name = path.file_name().unwrap_or_default();
        let opened = open(parent, flags, Mode::empty())
            .and_then(|parent| openat(&parent, name, flags, Mode::empty()));
        let opened = opened.map_err(io::Error::from);
        Ok(Self {
            path: path.to_owned(),
            directory: opened.map_err(OciImageError::io("open", path))?.into(),
        })
    }

    /// Opens a regular file in it; `None`: there is none.
    pub(super) fn open_file(&self, name: &str) -> io::Result<Option<File>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match openat(&self.directory, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::LOOP) => Err(not_a_file()),
            opened => regular(opened?.into()).map(Some),
        }
    }

    /// Makes a file for a new blob, locked, after what killed pushes have left was removed.
    pub(super) fn make_file(&self) -> io::Result<(File, String)> {
        self.remove_left()?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        loop {
            let name = format!("{NEW}{:016x}", fastrand::u64(..));
            let file = match openat(&self.directory, name.as_str(), flags, Mode::from(0o644)) {
                Err(Errno::EXIST) => continue,
                made => File::from(made?),
            };
            // Between the two calls another process may take it for an abandoned file.
            let locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
            let is_there = fstat(&file)?.st_nlink > 0;
            match locked {
                Ok(()) if is_there => return Ok((file, name)),
                Ok(()) | Err(Errno::WOULDBLOCK) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn remove_left(&self) -> io::Result<()> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        for entry in Dir::read_from(&self.directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if !name.to_bytes().starts_with(NEW.as_bytes()) {
                continue;
            }
            // One that is gone, or no file, is not ours to remove.
            let Ok(file) = openat(&self.directory, name, flags, Mode::empty()) else {
                continue;
            };
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                self.unlink(name)?;
            }
        }
        Ok(())
    }

    pub(super) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(&self.directory, from, &self.directory, to)?)
    }

    /// Removes a file; that there is none is no error.
    pub(super) fn unlink(&self, name: impl rustix::path::Arg) -> io::Result<()> {
        match unlinkat(&self.directory, name, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Has the names of its files survive a crash of the machine.
    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(fsync(&self.directory)?)
    }

    /// Opens or makes a file of our own beside others'.
    pub(super) fn open_own(directory: &Path, name: &str) -> io::Result<File> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        regular(open(directory.join(name), flags, Mode::from(0o644))?.into())
    }
}

fn regular(file: File) -> io::Result<File> {
    match FileType::from_raw_mode(fstat(&file)?.st_mode) {
        FileType::RegularFile => Ok(file),
        _ => Err(not_a_file()),
    }
}

fn not_a_file() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it is not a regular file")
}
