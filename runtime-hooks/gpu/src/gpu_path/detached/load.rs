//! Loads GPU contents of an image into files in memory, and maps them over the holes of restored
//! processes.

use std::io;
use std::path::PathBuf;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stasis_injection::detach::map;
use stasis_injection::{ContentsFile, Sharing, Span};
use stasis_linux::memory_file;
use stasis_memory_store::{Area, FileContents, ImageId, Index, LoadProgress, Reader, StoreError};

use super::in_file::InFile;
use super::progress::with_progress;
use super::{OfProcess, in_processes};
use crate::cuda::process_set::initial_state::ProcessId;
use crate::gpu_path::process::threads_for;
use crate::gpu_path::steps::{next, report_done, report_result};

/// Time between two reports of what is loaded.
const AGAIN: Duration = Duration::from_millis(5);

/// The work of the process that loads.
#[derive(Debug, Serialize, Deserialize)]
pub struct Load {
    /// The directory of the image.
    pub image: PathBuf,
    /// Id of the image: another image may have taken its place.
    pub image_id: ImageId,
    /// The directory of the packs, unless they are in the image.
    pub store: Option<PathBuf>,
    /// How many threads read.
    pub threads: usize,
    /// When the answer comes.
    pub until: Until,
}

/// The state that is reached before CRIU begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Until {
    /// All contents are loaded and verified: no task of a damaged image ever runs. This file has
    /// the progress.
    Loaded(Option<PathBuf>),
    /// Their files exist: contents are loaded beside CRIU and the driver, which waits for the bytes
    /// that it copies. A damaged part ends the container before a process of it can use its GPU.
    Begun,
}

/// News of contents that are loaded while the operation goes on.
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
                let loaded = report_done(self.load())?;
                let Some(restored) = next::<Restored>()? else {
                    return Ok(());
                };
                report_result(map_all(&loaded, &restored))
            }
        }
    }

    /// Loads contents into files of their own, or verifies packs that can be mapped.
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

    /// Loads beside the driver. The injected memcpy waits at the reported load offset.
    fn beside_the_driver(&self) -> io::Result<()> {
        let Source { index, reader } = self.source().or_else(|error| report_done(Err(error)))?;
        let contents = report_done(self.files_for(&index, &reader))?;
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
                report_result(map_all(&contents, &restored))?;
                while !loading.is_finished() {
                    let missing = fronts.missing(&contents, &restored);
                    report_result(Ok(Arrived::Missing(missing)))?;
                    thread::sleep(AGAIN);
                }
                Ok(())
            });
            if told.is_err() {
                // The operation is over, and needs the rest no more.
                process::exit(1);
            }
            let loaded = loading.join().unwrap_or(Err(StoreError::Panic));
            let loaded = loaded.map(|()| Arrived::All);
            report_result(loaded.map_err(io::Error::other))
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

    /// Makes files for the contents of all holes, empty unless they are the stored packs.
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

/// An image, and the reader of its contents.
struct Source {
    index: Index,
    reader: Reader,
}

/// The loaded bytes of each file, and its length.
struct Fronts(Vec<(AtomicU64, u64)>);

impl Fronts {
    fn of(files: &[FileContents<'_>]) -> Self {
        let front = |file: &FileContents<'_>| (AtomicU64::new(0), file.bytes);
        Self(files.iter().map(front).collect())
    }

    /// Returns the bytes that each process lacks. With several files only 0 is of use: complete.
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

fn map_all(loaded: &[Contents], restored: &Restored) -> io::Result<()> {
    in_processes(loaded, |contents| contents.map(restored))
}

/// Makes a file for the contents of a hole. A driver clears all pages by one thread; here each
/// thread that loads clears the pages that it is about to write.
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
    /// Pid of the process, in the container.
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

    fn map(&self, restored: &Restored) -> io::Result<()> {
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
        map(&process, self.contents, file, *offset, *sharing).map_err(io::Error::other)
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
