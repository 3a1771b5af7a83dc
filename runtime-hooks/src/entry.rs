//! Directory entries that may be absent, or be something else than they should.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens an entry of a directory whose contents are not to be trusted, for reading: follows no link
/// and does not wait for the other end of a fifo. `None` if there is no such entry. What was opened
/// still has to be looked at.
pub(crate) fn open(path: &Path) -> io::Result<Option<File>> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    absent_is(None, opened.map(Some))
}

/// Removes an entry that may be absent.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    absent_is((), fs::remove_file(path))
}

fn absent_is<T>(absent: T, result: io::Result<T>) -> io::Result<T> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(absent),
        other => other,
    }
}
