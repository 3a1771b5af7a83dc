//! The process that holds GPU contents while their processes are dumped.

use std::fs;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use stasis_injection::hole::dig;
use stasis_injection::{ContentsFile, Sharing, file_of};
use stasis_linux::ProcessRef;
use stasis_linux::memory_file::is_sealed;
use stasis_memory_store::{DumpRequest, FileContents, Report, Writer};

use super::in_file::InFile;
use super::record::{Away, HeldRecord};
use super::store::store;
use super::{OfProcess, in_processes, map_again};
use crate::gpu_path::steps::{asked, said, say_result};

/// What it is to do.
#[derive(Debug, Serialize, Deserialize)]
pub struct Hold {
    pub(super) in_files: Vec<InFile>,
    /// The directory of the image.
    pub(super) image: PathBuf,
    pub(super) request: DumpRequest,
    /// The operation's.
    pub(super) directory: PathBuf,
}

/// A step that the operation asks for; they come in this order. At the end of its input it waits
/// for whoever recovers the operation, or for the end of the processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum HoldStep {
    Store,
    TakeAway,
    GiveBack,
}

/// Contents that we have the file of.
struct Held {
    process: ProcessRef,
    in_file: InFile,
    from: ContentsFile,
}

impl Hold {
    pub(super) fn run(&self) -> io::Result<()> {
        if !asked(&HoldStep::Store)? {
            return Ok(());
        }
        // What it holds is freed by nobody else's end, and lost with its own.
        let _ = fs::write("/proc/self/oom_score_adj", "-1000");
        let held = self.open().or_else(|error| said(Err(error)))?;
        say_result(self.store(&held))?;
        if !asked(&HoldStep::TakeAway)? {
            return Ok(());
        }
        let record = said(self.take_away(&held))?;
        let goes_on = asked(&HoldStep::GiveBack);
        if !matches!(goes_on, Ok(true)) {
            // What the operation has started may go on without it, and save the processes.
            record.until_wanted(|| held.iter().all(|held| held.process.is_gone()));
        }
        let given = give_back(&held);
        if given.is_ok() {
            record.remove();
        }
        if goes_on? {
            say_result(given)?;
        }
        Ok(())
    }

    fn open(&self) -> io::Result<Vec<Held>> {
        let mut held = Vec::with_capacity(self.in_files.len());
        for in_file in &self.in_files {
            let process = in_file.process.open()?;
            let process = process.ok_or_else(|| io::Error::other("a process has ended"))?;
            let from = file_of(&process, in_file.contents)?;
            held.push(Held {
                process,
                in_file: *in_file,
                from,
            });
        }
        Ok(held)
    }

    fn store(&self, held: &[Held]) -> io::Result<Report> {
        let contents: Vec<_> = held.iter().map(Held::contents).collect();
        let writer = Writer::create(&self.image, &self.request).map_err(io::Error::other)?;
        store(writer, &contents, &self.request)
    }

    fn away(&self) -> Away {
        Away {
            image: self.image.clone(),
            store: self.request.directory.clone(),
            in_files: self.in_files.clone(),
        }
    }

    /// From the record on, whoever comes after us gives them back.
    fn take_away(&self, held: &[Held]) -> io::Result<HeldRecord> {
        let record = HeldRecord::write(&self.directory, &self.away())?;
        let dug = in_processes(held, Held::take_away);
        let dug = dug.and_then(|()| in_processes(held, Held::seal));
        match dug {
            Ok(()) => Ok(record),
            Err(error) => {
                if give_back(held).is_ok() {
                    record.remove();
                }
                Err(error)
            }
        }
    }
}

impl OfProcess for Held {
    fn pid(&self) -> i32 {
        self.in_file.pid
    }
}

impl Held {
    fn contents(&self) -> FileContents<'_> {
        FileContents {
            pid: self.in_file.pid,
            start: self.in_file.contents.start,
            file: &self.from.file,
            offset: self.from.offset,
            bytes: self.in_file.contents.length,
        }
    }

    fn take_away(&self) -> io::Result<()> {
        dig(&self.process, self.in_file.contents).map_err(io::Error::other)
    }

    /// What has become an image must not be changed through a mapping that a process has kept.
    fn seal(&self) -> io::Result<()> {
        if self.from.sharing == Sharing::Shared || is_sealed(&self.from.file)? {
            return Ok(());
        }
        let process = &self.process;
        Err(io::Error::other(format!(
            "a process has kept a mapping of the GPU contents of {process}, and could change the \
             image with it"
        )))
    }
}

/// All that can be given back.
fn give_back(held: &[Held]) -> io::Result<()> {
    in_processes(held, |held| {
        map_again(&held.process, held.in_file.contents, &held.from)
    })
}
