//! Stores contents of an image once more, in another store: from packs in memory, which never
//! change any more, so the processes go on meanwhile.

use std::io::{self, Read};
use std::path::PathBuf;
use std::process::exit;
use std::thread;

use serde::{Deserialize, Serialize};
use stasis_host::file_lock::lock_soon;
use stasis_linux::file;
use stasis_memory_store::{
    Area, DumpRequest, FileContents, Index, Reader, StoreStatistics, Writer,
};

use super::store::store;

/// The work of storing an image's contents again.
#[derive(Debug, Serialize, Deserialize)]
pub struct StoreAgain {
    /// The directory of the image, whose index is replaced.
    pub(super) image: PathBuf,
    /// The directory of the packs in memory.
    pub(super) staged: Option<PathBuf>,
    pub(super) request: DumpRequest,
    /// The request in the operation's directory: recovery of the operation waits for its lock.
    pub(super) request_file: PathBuf,
}

impl StoreAgain {
    /// Stores the contents. The process ends with its operation, which waits for it.
    pub(super) fn run(&self) -> io::Result<StoreStatistics> {
        let request = file::open(&self.request_file)?.ok_or(io::ErrorKind::NotFound)?;
        lock_soon(&request)?;
        thread::spawn(|| {
            let _ = io::stdin().read(&mut [0]);
            exit(1);
        });
        let index = self.index()?;
        let reader = Reader::open(&self.image, &index, self.staged.as_deref());
        let reader = reader.map_err(io::Error::other)?;
        let areas = index.processes.iter().flat_map(|process| {
            let areas = process.areas.iter();
            areas.map(|area| contents(process.pid, area, &reader))
        });
        let contents = areas.collect::<io::Result<Vec<_>>>()?;
        let writer = Writer::replace(&self.image, &self.request).map_err(io::Error::other)?;
        store(writer, &contents, &self.request)
    }

    /// Reads the image's present index.
    pub(super) fn index(&self) -> io::Result<Index> {
        let index = Index::read(&self.image).map_err(io::Error::other)?;
        index.ok_or_else(|| io::Error::other("the image has no index"))
    }
}

fn contents<'r>(pid: i32, area: &Area, reader: &'r Reader) -> io::Result<FileContents<'r>> {
    let there = reader.in_place(area);
    let (file, offset) = there.ok_or_else(|| io::Error::other("contents are not in one pack"))?;
    Ok(FileContents {
        pid,
        start: area.start,
        file,
        offset,
        bytes: area.bytes,
    })
}
