//! The process that holds GPU contents while their processes are dumped.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use stasis_host::file_lock::lock_soon;
use stasis_host::lent::Lent;
use stasis_linux::file_system::detached::DetachedMount;
use stasis_linux::{ProcessRef, file};
use stasis_memory_store::{DumpRequest, StoreStatistics, Writer};

use super::held::{Held, ask_for_room, give_back, keep, open, seal, there};
use super::in_file::{InFile, in_files};
use super::record::{Detached, HeldRecord};
use super::stand_by::StandBy;
use super::store::{Storing, store_coming};
use super::{PATIENCE, in_processes};
use crate::cuda::process_set::initial_state::ProcessId;
use crate::gpu_path::copier::Copier;
use crate::gpu_path::share::Share;
use crate::gpu_path::steps::{asked, next, report_done, report_result};

/// The work of the process.
#[derive(Debug, Serialize, Deserialize)]
pub struct Hold {
    /// The directory where the image is written.
    pub(super) image: PathBuf,
    /// Directories where the image may be later.
    pub(super) places: Vec<PathBuf>,
    /// A lock that keeps others from the image, which may have the only copy of the contents.
    pub(super) lock: Lent,
    pub(super) request: DumpRequest,
    /// The request in the operation's directory: recovery of the operation waits for its lock.
    pub(super) request_file: PathBuf,
    /// The bytes that all processes together are expected to have.
    pub(super) expected: u64,
    /// The operation's directory.
    pub(super) directory: PathBuf,
    /// The mount through which processes get packs, if they do.
    pub(super) mount: Option<Lent>,
}

/// A step that the operation asks for; they come in this order. At the end of its input the process
/// waits for recovery of the operation, or for the end of the processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum HoldStep {
    /// The driver has put the contents of a process into its file: store them while it works on
    /// others. This step comes once for each such process, and has no answer.
    Store(Checkpointed),
    /// These are all; store the ones that are not stored yet.
    StoreAll(Vec<InFile>),
    TakeAway,
    GiveBack,
}

/// A process, and its pid in the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Checkpointed {
    pub(super) process: ProcessId,
    pub(super) pid: i32,
}

/// The steps that the operation has sent.
#[derive(Default)]
struct Told {
    all: Option<Vec<InFile>>,
}

impl Hold {
    pub(super) fn run(&self) -> io::Result<()> {
        // Another process's end frees none of its memory, and its own end loses the contents.
        let _ = fs::write("/proc/self/oom_score_adj", "-1000");
        let lock = self.lock.take()?;
        let mount = self.mount.map(Lent::take).transpose();
        let mount = mount.map(|mount| mount.map(DetachedMount::from));
        let mut told = Told::default();
        let stored = self.store(&mut told);
        // The operation asks for all even if storing has failed before.
        if !told.until_all()? {
            return Ok(());
        }
        let (held, report) = stored.or_else(|error| report_done(Err(error)))?;
        report_result(Ok(report))?;
        if !asked(&HoldStep::TakeAway)? {
            return Ok(());
        }
        let taken = mount.and_then(|mount| self.detach(&held, &lock, mount.as_ref()));
        // The stand-by process ends with us, once nothing is detached any more.
        let (record, _stands_by) = report_done(taken)?;
        if matches!(asked(&HoldStep::GiveBack), Ok(true)) {
            let given = give_back(&held);
            if given.is_ok() {
                record.remove();
                return report_result(given);
            }
            report_result(given)?;
        }
        // Programs that the operation has started may go on without it, and save the processes.
        keep(&held, &record);
        Ok(())
    }

    /// Stores contents as the driver's calls return. A process whose contents are not known yet is
    /// looked at again when all calls have returned.
    fn store(&self, told: &mut Told) -> io::Result<(Vec<Held>, StoreStatistics)> {
        let request = file::open(&self.request_file)?.ok_or(io::ErrorKind::NotFound)?;
        lock_soon(&request)?;
        let writer = Writer::create(&self.image, &self.request).map_err(io::Error::other)?;
        let held = RefCell::new(Vec::new());
        let bring = |storing: &Storing<'_>| {
            let mut held = held.borrow_mut();
            while let Some(checkpointed) = told.next()? {
                let new = checkpointed.open().and_then(|process| in_files(&[process]));
                let new = new.and_then(open);
                self.add(&mut held, new.unwrap_or_default(), storing)?;
            }
            let all = told.all.as_deref().ok_or(io::ErrorKind::UnexpectedEof)?;
            held.retain(|held| all.contains(&held.in_file));
            let is_new = |all: &&InFile| !held.iter().any(|held| held.in_file == **all);
            let new: Vec<_> = all.iter().filter(is_new).copied().collect();
            self.add(&mut held, open(new)?, storing)
        };
        let is_held = |key| held.borrow().iter().any(|held| held.key() == key);
        let report = store_coming(writer, &self.request, bring, is_held)?;
        Ok((held.into_inner(), report))
    }

    /// Adds contents, and has as many threads store beside the driver as the finished processes had
    /// for their copying.
    fn add(&self, held: &mut Vec<Held>, new: Vec<Held>, storing: &Storing<'_>) -> io::Result<()> {
        let done = held.iter().chain(&new).map(|held| held.in_file.bytes());
        let at_work = Share::new(done.sum(), self.expected).of_threads(storing.threads());
        for held in &new {
            storing.add(&held.contents(), at_work)?;
        }
        held.extend(new);
        Ok(())
    }

    fn detached(&self, held: &[Held]) -> Detached {
        Detached {
            places: self.places.clone(),
            image_id: self.request.image_id,
            store: self.request.directory.clone(),
            in_files: held.iter().map(|held| held.in_file).collect(),
        }
    }

    /// Detaches contents. From the record on, any later process of ours gives them back.
    fn detach(
        &self,
        held: &[Held],
        lock: &OwnedFd,
        mount: Option<&DetachedMount>,
    ) -> io::Result<(HeldRecord, Copier)> {
        ask_for_room(held)?;
        let record = HeldRecord::write(&self.directory, &self.detached(held))?;
        let stands_by = StandBy::start(held, &record, lock);
        let mut stands_by = stands_by.inspect_err(|_| record.remove())?;
        let taken = in_processes(held, Held::detach)
            .and_then(|()| seal(held, mount))
            .and_then(|()| stands_by.answer(PATIENCE));
        match taken {
            Ok(()) => Ok((record, stands_by)),
            Err(error) => {
                if give_back(held).is_ok() {
                    record.remove();
                }
                Err(error)
            }
        }
    }
}

impl Told {
    /// Reads the next process that the driver is done with; none once all are known, or at the end
    /// of the input.
    fn next(&mut self) -> io::Result<Option<Checkpointed>> {
        match next()? {
            Some(HoldStep::Store(checkpointed)) => Ok(Some(checkpointed)),
            Some(HoldStep::StoreAll(all)) => {
                self.all = Some(all);
                Ok(None)
            }
            None => Ok(None),
            Some(other) => Err(io::Error::other(format!("asked for {other:?}"))),
        }
    }

    /// Reads on until all are known; false at the end of the input.
    fn until_all(&mut self) -> io::Result<bool> {
        while self.all.is_none() && self.next()?.is_some() {}
        Ok(self.all.is_some())
    }
}

impl Checkpointed {
    fn open(&self) -> io::Result<(i32, ProcessRef)> {
        Ok((self.pid, there(self.process)?))
    }
}
