//! The operation's end of a process that holds GPU contents while their processes are dumped, and
//! of one that stores them again.

use std::io;
use std::path::Path;
use std::time::Duration;

use stasis_memory_store::{DumpRequest, Report};

use super::again::StoreAgain;
use super::hold::{Hold, HoldStep};
use super::in_file::InFile;
use super::process::{AwayProcess, VERB};
use super::{PATIENCE, limit_for};
use crate::gpu_path::copier::{Copier, Unanswered};
use crate::host::cancel::Cancel;

/// For what takes milliseconds for each process.
const LIMIT: Duration = Duration::from_secs(60);

/// A process that holds contents. When this is dropped it waits for who wants them back
/// ([`super::give_back`]).
#[derive(Debug)]
pub(crate) struct Holder {
    process: Copier,
    limit: Duration,
}

impl Holder {
    /// Starts it for an image; `directory` is the operation's.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn start(
        in_files: Vec<InFile>,
        image: &Path,
        request: &DumpRequest,
        directory: &Path,
    ) -> io::Result<Self> {
        let bytes = in_files.iter().map(InFile::bytes).sum();
        let job = AwayProcess::Hold(Box::new(Hold {
            in_files,
            image: image.to_owned(),
            request: request.clone(),
            directory: directory.to_owned(),
        }));
        Ok(Self {
            process: Copier::start(VERB, &job)?,
            limit: limit_for(bytes),
        })
    }

    /// Stores the contents, with the index of the image, unless the operation is cancelled before.
    ///
    /// # Errors
    /// [`Unanswered`]; nobody stores any more.
    pub(crate) fn store(&mut self, cancel: &Cancel) -> Result<Report, Unanswered> {
        let stored = self
            .process
            .step_unless(|| cancel.requested(), HoldStep::Store, self.limit);
        if stored.is_err() {
            // It is in no program yet.
            self.process.kill();
        }
        stored
    }

    /// Takes the contents away from their processes.
    ///
    /// # Errors
    /// All are there, or are recorded as away.
    pub(crate) fn take_away(&mut self) -> io::Result<()> {
        self.process.step(HoldStep::TakeAway, LIMIT)
    }

    /// Gives them back.
    ///
    /// # Errors
    /// Some are still away.
    pub(crate) fn give_back(mut self) -> io::Result<()> {
        self.process.step(HoldStep::GiveBack, LIMIT + PATIENCE)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.process.leave();
    }
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
