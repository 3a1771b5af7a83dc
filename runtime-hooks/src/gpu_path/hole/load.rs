//! GPU contents of an image are loaded into files in memory, and mapped over the holes of restored
//! processes.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use stasis_injection::hole::fill;
use stasis_injection::{ContentsFile, Sharing, Span};
use stasis_memory_store::{Area, CriuHas, FileContents, Index, Reader};

use super::in_file::InFile;
use super::progress::with_progress;
use crate::cuda::process_set::as_found::ProcessId;
use crate::gpu_path::new_file::NewFile;
use crate::gpu_path::process::threads_for;
use crate::gpu_path::steps::{next, said, say_result};

/// What the process that loads is to do.
#[derive(Debug, Serialize, Deserialize)]
pub struct Load {
    /// The directory of the image.
    pub(crate) image: PathBuf,
    /// That of the packs, unless they are in the image.
    pub(crate) store: Option<PathBuf>,
    pub(crate) threads: usize,
    /// The file that says how far it is.
    pub(crate) progress: Option<PathBuf>,
}

/// The processes whose holes are to be filled, by their pids in the container.
pub(super) type Restored = Vec<(i32, ProcessId)>;

impl Load {
    pub(super) fn run(&self) -> io::Result<()> {
        let loaded = said(self.load())?;
        let Some(restored) = next::<Restored>()? else {
            return Ok(());
        };
        say_result(fill_all(&loaded, &restored))
    }

    /// Into files of their own, or verifies what can be mapped as it is stored.
    pub(super) fn load(&self) -> io::Result<Vec<Contents>> {
        let index = Index::read(&self.image).map_err(io::Error::other)?;
        let index = index.ok_or_else(|| io::Error::other("the image has no index"))?;
        let reader = Reader::open(&self.image, &index, self.store.as_deref());
        let reader = reader.map_err(io::Error::other)?;
        let threads = threads_for(self.threads);
        let mut loaded = Vec::new();
        for process in &index.processes {
            let areas = process.areas.iter();
            for hole in areas.filter(|area| area.criu_has == CriuHas::Hole) {
                let from = match reader.in_place(hole) {
                    Some((file, offset)) => as_image(file, offset)?,
                    None => new_file(hole, threads)?,
                };
                loaded.push(Contents::new(process.pid, hole, from));
            }
        }
        let files: Vec<_> = loaded.iter().map(Contents::in_file).collect();
        let bytes = files.iter().map(|contents| contents.bytes).sum();
        let filled = with_progress(self.progress.as_deref(), bytes, |done| {
            reader.load_files(&index.processes, &files, threads, done)
        });
        filled.map_err(io::Error::other)?;
        Ok(loaded)
    }
}

fn fill_all(loaded: &[Contents], restored: &Restored) -> io::Result<()> {
    for Contents {
        pid,
        contents,
        from,
    } in loaded
    {
        let found = restored.iter().find(|(inside, _)| inside == pid);
        let process = match found {
            Some((_, process)) => process.open()?,
            None => None,
        };
        let missing = || io::Error::other(format!("process {pid} of the container is not there"));
        let process = process.ok_or_else(missing)?;
        let filled = fill(&process, *contents, &from.file, from.offset, from.sharing);
        filled.map_err(io::Error::other)?;
    }
    Ok(())
}

/// Room for the contents of a hole.
fn new_file(hole: &Area, threads: NonZeroUsize) -> io::Result<ContentsFile> {
    let made = NewFile::Nameless.make(hole.bytes, threads)?;
    Ok(ContentsFile {
        file: made.file,
        offset: made.offset,
        sharing: Sharing::Shared,
    })
}

/// Many may have it at once, and none can change it.
fn as_image(file: &File, offset: u64) -> io::Result<ContentsFile> {
    Ok(ContentsFile {
        file: file.try_clone()?,
        offset,
        sharing: Sharing::Private,
    })
}

/// Contents of an image, and the file that they are in.
#[derive(Debug)]
pub(super) struct Contents {
    /// Their process, in the container.
    pid: i32,
    contents: Span,
    pub(super) from: ContentsFile,
}

impl Contents {
    fn new(pid: i32, hole: &Area, from: ContentsFile) -> Self {
        let contents = Span {
            start: hole.start,
            length: hole.bytes,
        };
        Self {
            pid,
            contents,
            from,
        }
    }

    pub(super) fn is_of(&self, in_file: &InFile) -> bool {
        (self.pid, self.contents) == (in_file.pid, in_file.contents)
    }

    fn in_file(&self) -> FileContents<'_> {
        FileContents {
            pid: self.pid,
            start: self.contents.start,
            file: &self.from.file,
            offset: self.from.offset,
            bytes: self.contents.length,
        }
    }
}
