//! Contents of an image that are stored once more, in another store: from packs in memory, which
//! nobody changes any more, so the processes go on meanwhile.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::exit;
use std::thread;

use serde::{Deserialize, Serialize};
use stasis_linux::file;
use stasis_memory_store::{Area, DumpRequest, FileContents, Index, Reader, Report, Writer};

use super::limit_for;
use super::process::{AwayProcess, VERB};
use super::store::store;
use crate::gpu_path::copier::{Copier, Unanswered};
use crate::host::cancel::Cancel;
use crate::host::file_lock::lock_soon;

/// What is stored again.
#[derive(Debug, Serialize, Deserialize)]
pub struct StoreAgain {
    /// The directory of the image, whose index is replaced.
    image: PathBuf,
    /// That of the packs in memory.
    staged: Option<PathBuf>,
    request: DumpRequest,
    /// The request in the operation's directory: whoever recovers that waits for its lock.
    request_file: PathBuf,
}

/// Stores what is in the store of `staged` in that of `request`, and replaces the index of the
/// image, unless the operation is cancelled before.
///
/// # Errors
/// [`Unanswered`]; nobody stores any more, and the index is as it was.
pub(crate) fn store_again(
    image: &Path,
    staged: &DumpRequest,
    (request, request_file): (&DumpRequest, &Path),
    cancel: &Cancel,
) -> Result<Report, Unanswered> {
    let again = StoreAgain {
        image: image.to_owned(),
        staged: staged.directory.clone(),
        request: request.clone(),
        request_file: request_file.to_owned(),
    };
    let limit = limit_for(again.index()?.areas().map(|area| area.bytes).sum());
    let job = AwayProcess::StoreAgain(Box::new(again));
    let mut process = Copier::start(VERB, &job)?;
    let stored = process.answer_unless(|| cancel.requested(), limit);
    if stored.is_err() {
        // It is in no program.
        process.kill();
    }
    stored
}

impl StoreAgain {
    /// Ends with its operation, which waits for it.
    pub(super) fn run(&self) -> io::Result<Report> {
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

    fn index(&self) -> io::Result<Index> {
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
