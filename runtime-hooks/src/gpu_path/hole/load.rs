//! GPU contents of an image are loaded into files in memory, and mapped over the holes of restored
//! processes.

use std::io;
use std::path::PathBuf;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stasis_injection::hole::fill;
use stasis_injection::{ContentsFile, Sharing, Span};
use stasis_linux::memory_file;
use stasis_memory_store::{Area, FileContents, ImageId, Index, LoadProgress, Reader, StoreError};

use super::in_file::InFile;
use super::progress::with_progress;
use super::{OfProcess, in_processes};
use crate::cuda::process_set::as_found::ProcessId;
use crate::gpu_path::process::threads_for;
use crate::gpu_path::steps::{next, said, say_result};

/// How often it is said what is there.
const AGAIN: Duration = Duration::from_millis(5);

/// What the process that loads is to do.
#[derive(Debug, Serialize, Deserialize)]
pub struct Load {
    /// Where the image is.
    pub(crate) image: PathBuf,
    /// Its id: nobody is given the contents of another one that has taken its place.
    pub(crate) image_id: ImageId,
    /// That of the packs, unless they are in the image.
    pub(crate) store: Option<PathBuf>,
    pub(crate) threads: usize,
    pub(crate) until: Until,
}

/// What is there before CRIU begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Until {
    /// All contents, and they are verified: no task of a damaged image ever runs. This file says
    /// how far it is.
    Loaded(Option<PathBuf>),
    /// Their files: contents are loaded beside CRIU and the driver, who waits for what it copies. A
    /// damaged part ends the container before a process of it can use its GPU.
    Begun,
}

/// What the operation hears of contents that are loaded while it goes on.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Arrived {
    /// How many bytes at the end of the contents of each process are missing.
    Missing(Vec<(ProcessId, u64)>),
    All,
}

/// The processes whose holes are to be filled, by their pids in the container.
pub(super) type Restored = Vec<(i32, ProcessId)>;

impl Load {
    pub(super) fn run(&self) -> io::Result<()> {
        match &self.until {
            Until::Begun => self.beside_the_driver(),
            Until::Loaded(_) => {
                let loaded = said(self.load())?;
                let Some(restored) = next::<Restored>()? else {
                    return Ok(());
                };
                say_result(fill_all(&loaded, &restored))
            }
        }
    }

    /// Into files of their own, or verifies what can be mapped as it is stored.
    pub(super) fn load(&self) -> io::Result<Vec<Contents>> {
        let progress = match &self.until {
            Until::Loaded(progress) => progress.as_deref(),
            Until::Begun => None,
        };
        let Source { index, reader } = self.source()?;
        let loaded = self.files_for(&index, &reader)?;
        let files: Vec<_> = loaded.iter().map(Contents::in_file).collect();
        let bytes = files.iter().map(|contents| contents.bytes).sum::<u64>();
        let filled = with_progress(progress, &bytes.into(), |done| {
            reader.load_files(&index.processes, &files, threads_for(self.threads), done)
        });
        filled.map_err(io::Error::other)?;
        reader.until_whole().map_err(io::Error::other)?;
        Ok(loaded)
    }

    /// What is mapped in the processes meanwhile is copied only as far as it is said to be there.
    fn beside_the_driver(&self) -> io::Result<()> {
        let Source { index, reader } = self.source().or_else(|error| said(Err(error)))?;
        let contents = said(self.files_for(&index, &reader))?;
        let files: Vec<_> = contents.iter().map(Contents::in_file).collect();
        let fronts = Fronts::of(&files);
        let load = || {
            let threads = threads_for(self.threads);
            reader.load_files(&index.processes, &files, threads, &fronts)?;
            reader.until_whole()
        };
        thread::scope(|scope| {
            let loading = scope.spawn(load);
            let told = next::<Restored>().and_then(|restored| {
                let restored = restored.ok_or(io::ErrorKind::UnexpectedEof)?;
                say_result(fill_all(&contents, &restored))?;
                while !loading.is_finished() {
                    let missing = fronts.missing(&contents, &restored);
                    say_result(Ok(Arrived::Missing(missing)))?;
                    thread::sleep(AGAIN);
                }
                Ok(())
            });
            if told.is_err() {
                // The operation is over, and nobody needs the rest.
                process::exit(1);
            }
            let loaded = loading.join().unwrap_or(Err(StoreError::Panic));
            let loaded = loaded.map(|()| Arrived::All);
            say_result(loaded.map_err(io::Error::other))
        })
    }

    fn source(&self) -> io::Result<Source> {
        let index = Index::read(&self.image).map_err(io::Error::other)?;
        let index = index.filter(|index| index.image_id == self.image_id);
        let exchanged = || io::Error::other("another image has taken its place meanwhile");
        let index = index.ok_or_else(exchanged)?;
        let reader = Reader::open(&self.image, &index, self.store.as_deref());
        let reader = reader.map_err(io::Error::other)?;
        Ok(Source { index, reader })
    }

    /// Files for the contents of all holes, empty unless they are what is stored.
    fn files_for(&self, index: &Index, reader: &Reader) -> io::Result<Vec<Contents>> {
        let mut files = Vec::new();
        for process in &index.processes {
            for hole in &process.areas {
                let from = match reader.to_map(hole).map_err(io::Error::other)? {
                    Some((file, offset)) => ContentsFile {
                        file,
                        offset,
                        sharing: Sharing::Private,
                    },
                    None => new_file(hole)?,
                };
                files.push(Contents::new(process.pid, hole, from));
            }
        }
        Ok(files)
    }
}

/// An image, and where its contents are read.
struct Source {
    index: Index,
    reader: Reader,
}

/// How far each file is loaded, in bytes, and its length.
struct Fronts(Vec<(AtomicU64, u64)>);

impl Fronts {
    fn of(files: &[FileContents<'_>]) -> Self {
        let front = |file: &FileContents<'_>| (AtomicU64::new(0), file.bytes);
        Self(files.iter().map(front).collect())
    }

    /// Of each process; one with contents in several files has all of them, or none.
    fn missing(&self, contents: &[Contents], restored: &Restored) -> Vec<(ProcessId, u64)> {
        let missing = |pid: i32| {
            let own = self.0.iter().zip(contents);
            let own = own.filter(|(_, contents)| contents.pid == pid);
            let of = |((front, bytes), _): (&(AtomicU64, u64), _)| {
                bytes.saturating_sub(front.load(Ordering::Acquire))
            };
            own.map(of).sum()
        };
        let each = restored.iter();
        each.map(|(pid, process)| (*process, missing(*pid)))
            .collect()
    }
}

impl LoadProgress for Fronts {
    fn loaded(&self, _: u64) {}

    fn loaded_up_to(&self, index: usize, end: u64) {
        if let Some((front, _)) = self.0.get(index) {
            front.fetch_max(end, Ordering::Release);
        }
    }
}

fn fill_all(loaded: &[Contents], restored: &Restored) -> io::Result<()> {
    in_processes(loaded, |contents| contents.fill(restored))
}

/// Room for the contents of a hole. Unlike a driver, which would clear all pages by one thread,
/// each thread that loads clears those that it is about to write.
fn new_file(hole: &Area) -> io::Result<ContentsFile> {
    let file = memory_file::create(hole.bytes)?;
    memory_file::allocate(&file, hole.bytes)?;
    Ok(ContentsFile {
        file,
        offset: 0,
        sharing: Sharing::Shared,
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

impl OfProcess for Contents {
    fn pid(&self) -> i32 {
        self.pid
    }
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

    fn fill(&self, restored: &Restored) -> io::Result<()> {
        let found = restored.iter().find(|(inside, _)| *inside == self.pid);
        let process = match found {
            Some((_, process)) => process.open()?,
            None => None,
        };
        let missing = || {
            io::Error::other(format!(
                "process {} of the container is not there",
                self.pid
            ))
        };
        let process = process.ok_or_else(missing)?;
        let ContentsFile {
            file,
            offset,
            sharing,
        } = &self.from;
        fill(&process, self.contents, file, *offset, *sharing).map_err(io::Error::other)
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
