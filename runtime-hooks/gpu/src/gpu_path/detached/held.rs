//! Files of GPU contents that a process of ours has open.

use std::collections::BTreeMap;
use std::io;

use stasis_injection::detach::unmap;
use stasis_injection::{ContentsFile, InjectionError, Sharing, file_of, rehearse};
use stasis_linux::ProcessRef;
use stasis_linux::file_system::detached::DetachedMount;
use stasis_linux::memory_file::is_sealed;
use stasis_memory_store::FileContents;

use super::in_file::InFile;
use super::record::HeldRecord;
use super::{OfProcess, in_processes, map_again};
use crate::cuda::process_set::initial_state::ProcessId;

/// Contents whose file we have open.
pub(super) struct Held {
    pub(super) process: ProcessRef,
    pub(super) in_file: InFile,
    pub(super) from: ContentsFile,
}

/// Opens a process that has not ended.
pub(super) fn there(process: ProcessId) -> io::Result<ProcessRef> {
    let process = process.open()?;
    process.ok_or_else(|| io::Error::other("a process has ended"))
}

/// Opens the files of these contents.
///
/// # Errors
/// A process has ended, or has no such contents.
pub(super) fn open(in_files: Vec<InFile>) -> io::Result<Vec<Held>> {
    let open = |in_file: InFile| {
        let process = there(in_file.process)?;
        let from = file_of(&process, in_file.contents)?;
        Ok(Held {
            process,
            in_file,
            from,
        })
    };
    in_files.into_iter().map(open).collect()
}

impl OfProcess for Held {
    fn pid(&self) -> i32 {
        self.in_file.pid
    }
}

impl Held {
    /// The pid and address by which an index lists the contents.
    pub(super) fn key(&self) -> (i32, u64) {
        (self.in_file.pid, self.in_file.contents.start)
    }

    pub(super) fn contents(&self) -> FileContents<'_> {
        FileContents {
            pid: self.in_file.pid,
            start: self.in_file.contents.start,
            file: &self.from.file,
            offset: self.from.offset,
            bytes: self.in_file.contents.length,
        }
    }

    pub(super) fn detach(&self) -> io::Result<()> {
        unmap(&self.process, self.in_file.contents).map_err(io::Error::other)
    }

    /// Checks that no process has the file open for writing, or has kept a mapping of it.
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

/// Asks the processes whether they may have all contents that come back to them as private memory,
/// before any are detached.
pub(super) fn ask_for_room(held: &[Held]) -> io::Result<()> {
    let mut processes = BTreeMap::new();
    for held in held
        .iter()
        .filter(|held| held.from.sharing == Sharing::Private)
    {
        let (_, bytes) = processes.entry(held.pid()).or_insert((&held.process, 0));
        *bytes += held.in_file.contents.length;
    }
    let processes: Vec<_> = processes.into_values().collect();
    have_at_once(&processes).map_err(io::Error::other)
}

/// Reserves for all processes at the same time: the kernel's commit limit is that of the machine.
fn have_at_once(processes: &[(&ProcessRef, u64)]) -> Result<(), InjectionError> {
    match processes {
        [] => Ok(()),
        [(process, bytes), others @ ..] => rehearse(process, *bytes, || have_at_once(others)),
    }
}

/// Protects contents that have become an image: fails if a process has kept a mapping, and makes
/// the mount read-only through which a descriptor's file could be opened anew.
pub(super) fn seal(held: &[Held], mount: Option<&DetachedMount>) -> io::Result<()> {
    let read_only = mount.map_or(Ok(()), DetachedMount::make_read_only);
    // First, since its error names the process.
    in_processes(held, Held::seal)?;
    read_only.map_err(|error| {
        let what = "GPU contents could be changed by who has their file open";
        io::Error::other(format!("{what}: {error}"))
    })
}

/// Gives back all contents that can be. If a process has ended, the memory of its nameless files is
/// freed, also if another process has kept such a file. Packs are the image's.
pub(super) fn give_back(held: &[Held]) -> io::Result<()> {
    in_processes(held, |held| {
        map_again(&held.process, held.in_file.contents, &held.from)?;
        if held.process.is_gone() && held.from.sharing == Sharing::Shared {
            let _ = held.from.file.set_len(0);
        }
        Ok(())
    })
}

/// Keeps contents until they are wanted and given back, or all their processes have ended.
pub(super) fn keep(held: &[Held], record: &HeldRecord) {
    let is_over = || held.iter().all(|held| held.process.is_gone());
    loop {
        record.until_wanted(is_over);
        match give_back(held) {
            // No other process may have the contents.
            Err(_) if !is_over() => record.not_given(),
            _ => break,
        }
    }
    record.remove();
}
