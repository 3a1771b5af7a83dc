//! The fetching process marks the image as arriving, and writes the result.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::thread::sleep;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use stasis_linux::file;

use super::{ARRIVING_FILE, FAILED, Fetched, MOST_LINE, POLL, WHOLE};
use crate::StoreError;

/// The fetching process's end: it has the file, and its lock.
#[derive(Debug)]
pub struct Fetching {
    file: File,
}

impl Fetching {
    /// Writes a file for an image directory that no process reads yet, or replaces the file that a
    /// cut-off fetching has left. The new file is durable when this returns.
    ///
    /// # Errors
    /// [`StoreError::Arriving`]: another process fetches the image. [`StoreError::Io`].
    pub fn begin(image: &Path, fetched: &Fetched) -> Result<Self, StoreError> {
        let path = image.join(ARRIVING_FILE);
        let failed = |error: io::Error| StoreError::io("write", &path)(error);
        // Held until the new file has its name: of two processes only one gets it.
        let earlier = file::open(&path).map_err(failed)?;
        if let Some(earlier) = &earlier
            && !(lock_soon(earlier).map_err(failed)? && file::is_at(earlier, &path))
        {
            let image = image.to_owned();
            return Err(StoreError::Arriving { image });
        }
        let new = image.join(format!("{ARRIVING_FILE}.new"));
        file::remove(&new).map_err(failed)?;
        let mut file = file::create_new(&new).map_err(failed)?;
        let written = lock_soon(&file).and_then(|_| {
            let Fetched { reference, digest } = fetched;
            file.write_all(line(&format!("{digest} {reference}")).as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&new, &path)?;
            file::sync_directory(image)
        });
        written.map_err(failed)?;
        Ok(Self { file })
    }

    /// Writes that the whole image is on disk, or why it is not, into the image directory under its
    /// present name.
    pub fn end(mut self, image: &Path, failed: Option<&str>) -> Result<(), StoreError> {
        let path = image.join(ARRIVING_FILE);
        let last = failed.map_or(WHOLE.to_owned(), |why| format!("{FAILED}{why}"));
        let said = self.file.write_all(line(&last).as_bytes());
        let said = said.and_then(|()| match failed {
            Some(_) => Ok(()),
            None => file::remove(&path),
        });
        said.map_err(StoreError::io("write", &path))
    }
}

/// Makes a line: names from elsewhere may have any character.
fn line(text: &str) -> String {
    let text: String = text.chars().take(MOST_LINE).collect();
    format!("{}\n", text.replace(char::is_control, " "))
}

/// Takes a lock that readers try for a moment ([`is_locked`]); `false`: a process keeps it.
fn lock_soon(file: &File) -> io::Result<bool> {
    for _ in 0..100 {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK | Errno::INTR) => sleep(POLL),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}
