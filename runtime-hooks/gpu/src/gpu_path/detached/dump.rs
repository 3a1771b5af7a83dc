//! The operation's end of a process that holds GPU contents while their processes are dumped, and
//! of one that stores them again.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use stasis_host::cancel::Cancel;
use stasis_host::lent::Lent;
use stasis_linux::ProcessRef;
use stasis_linux::file_system::detached::DetachedMount;
use stasis_memory_store::{DumpRequest, StoreStatistics};

use super::again::StoreAgain;
use super::hold::{Checkpointed, Hold, HoldStep};
use super::in_file::InFile;
use super::process::{DetachedProcess, VERB};
use super::{PATIENCE, limit_for};
use crate::cuda::process_set::initial_state::ProcessId;
use crate::gpu_path::copier::{Copier, Unanswered};

/// The most time for a step of milliseconds for each process.
const LIMIT: Duration = Duration::from_secs(60);

/// A process that stores contents and holds them. Dropping this before they are stored ends the
/// process; after that it waits for a caller of [`super::give_back`].
#[derive(Debug)]
pub struct Holder {
    process: Mutex<Copier>,
    has: Has,
}

#[derive(Debug, PartialEq, Eq)]
enum Has {
    /// The process works in no program yet.
    NotStored,
    Stored,
}

impl Holder {
    /// Starts the holder of an image whose processes are to have `expected` bytes together, before
    /// the driver has put them into files; processes get packs through `mount`. The image is
    /// written in this directory, which `lock` keeps from others, and may be in one of these places
    /// later; `directory` is the operation's, and has the request in this file.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn start(
        expected: u64,
        (image, places, lock): (&Path, &[PathBuf], &File),
        (request, request_file): (&DumpRequest, &Path),
        directory: &Path,
        mount: Option<&DetachedMount>,
    ) -> io::Result<Self> {
        let mount = mount.map(|mount| Lent::of(mount.as_fd()));
        let job = DetachedProcess::Hold(Box::new(Hold {
            image: image.to_owned(),
            places: places.to_owned(),
            lock: Lent::of(lock.as_fd())?,
            request: request.clone(),
            request_file: request_file.to_owned(),
            expected,
            directory: directory.to_owned(),
            mount: mount.transpose()?,
        }));
        Ok(Self {
            process: Mutex::new(Copier::start(VERB, &job)?),
            has: Has::NotStored,
        })
    }

    /// Reports that the driver has put the contents of a process, with this pid in the container,
    /// into its file. If the report cannot be sent now, they are stored with the rest.
    pub fn is_checkpointed(&self, process: &ProcessRef, pid: i32) {
        let process = ProcessId::of(process);
        let step = HoldStep::Store(Checkpointed { process, pid });
        let told = self.process.lock();
        told.unwrap_or_else(PoisonError::into_inner).tell(step);
    }

    /// Stores the contents of all processes, with the index of the image, unless the operation is
    /// cancelled before.
    pub fn store(
        &mut self,
        in_files: Vec<InFile>,
        cancel: &Cancel,
    ) -> Result<StoreStatistics, Unanswered> {
        let limit = limit_for(in_files.iter().map(InFile::bytes).sum());
        let all = HoldStep::StoreAll(in_files);
        let is_cancelled = || cancel.requested();
        let stored = self.process().step_unless(is_cancelled, all, limit)?;
        self.has = Has::Stored;
        Ok(stored)
    }

    /// Detaches the contents from their processes.
    ///
    /// # Errors
    /// All contents are in place, or are recorded as detached.
    pub fn detach(&mut self) -> io::Result<()> {
        self.process().step(HoldStep::TakeAway, LIMIT)
    }

    /// Gives the contents back.
    ///
    /// # Errors
    /// Some are still detached.
    pub fn give_back(mut self) -> io::Result<()> {
        self.process().step(HoldStep::GiveBack, LIMIT + PATIENCE)
    }

    fn process(&mut self) -> &mut Copier {
        let process = self.process.get_mut();
        process.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        match self.has {
            Has::NotStored => self.process().kill(),
            Has::Stored => self.process().leave(),
        }
    }
}

/// Copies the contents in the store of `staged` into the store of `request`, and replaces the index
/// of the image, unless the operation is cancelled before.
///
/// # Errors
/// [`Unanswered`]; the process that stores has ended, and the index is as it was.
pub fn store_again(
    image: &Path,
    staged: &DumpRequest,
    (request, request_file): (&DumpRequest, &Path),
    cancel: &Cancel,
) -> Result<StoreStatistics, Unanswered> {
    let again = StoreAgain {
        image: image.to_owned(),
        staged: staged.directory.clone(),
        request: request.clone(),
        request_file: request_file.to_owned(),
    };
    let limit = limit_for(again.index()?.areas().map(|area| area.bytes).sum());
    let job = DetachedProcess::StoreAgain(Box::new(again));
    let mut process = Copier::start(VERB, &job)?;
    let stored = process.answer_unless(|| cancel.requested(), limit);
    if stored.is_err() {
        // The process works in no program.
        process.kill();
    }
    stored
}
