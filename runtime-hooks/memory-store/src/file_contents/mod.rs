//! Contents of processes that lie in files in memory, and not in the processes: GPU contents, for
//! which CRIU has a hole.

pub(crate) mod queue;

use std::fs::File;
use std::io;

use crate::{Area, PAGE, StoreError};

/// The most chunks that a thread takes at a time. They are adjacent in a pack, so a disk reads long
/// parts.
pub(crate) const PIECE: u16 = 16;

/// Contents of a process that lie in a file in memory (`stasis_linux::memory_file`), or are to be
/// loaded into one.
#[derive(Debug, Clone, Copy)]
pub struct FileContents<'f> {
    /// Pid of the process, in the container.
    pub pid: i32,
    /// Address of the contents in the process.
    pub start: u64,
    /// The file.
    pub file: &'f File,
    /// Offset of the contents in the file; a multiple of [`PAGE`].
    pub offset: u64,
    /// Length in bytes; a multiple of [`PAGE`].
    pub bytes: u64,
}

impl FileContents<'_> {
    /// Refuses all but whole pages that the file has: a read behind its end is SIGBUS.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let metadata = self.file.metadata();
        let length = metadata.map_err(self.failed("look at"))?.len();
        let Self { offset, bytes, .. } = *self;
        let whole = [offset, bytes].map(|each| each.is_multiple_of(PAGE as u64)) == [true; 2];
        let end = offset.checked_add(bytes).filter(|end| *end <= length);
        if whole && bytes > 0 && end.is_some() {
            return Ok(());
        }
        let what = format!("{bytes} bytes at {offset} are not whole pages of its {length}");
        Err(self.failed("use")(io::Error::other(what)))
    }

    pub(crate) fn are_of(&self, pid: i32, area: &Area) -> bool {
        (self.pid, self.start, self.bytes) == (pid, area.start, area.bytes)
    }

    /// For `map_err`: the error of an action on the file.
    pub(crate) fn failed(&self, action: &'static str) -> impl FnOnce(io::Error) -> StoreError {
        let (process, area) = (self.pid, self.start);
        move |source| StoreError::MemoryFile {
            action,
            process,
            area,
            source,
        }
    }
}

#[cfg(test)]
mod tests;
