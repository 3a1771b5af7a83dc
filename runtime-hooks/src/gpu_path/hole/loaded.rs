//! The operation's end of a process that has loaded the GPU contents of an image.

use std::io;
use std::time::Duration;

use stasis_linux::ProcessRef;

use super::limit_for;
use super::load::{Load, Restored};
use super::process::{AwayProcess, VERB};
use crate::cuda::process_set::as_found::ProcessId;
use crate::gpu_path::copier::{Copier, Unanswered};
use crate::host::cancel::Cancel;

/// For what takes milliseconds for each process.
const LIMIT: Duration = Duration::from_secs(60);

/// That process, once all is loaded.
#[derive(Debug)]
pub(crate) struct Loaded(Copier);

impl Loaded {
    /// Loads the contents of the holes of an image, so many bytes, and verifies them, unless the
    /// operation is cancelled before.
    ///
    /// # Errors
    /// [`Unanswered`]: a part of the image is damaged or missing ([`io::ErrorKind::InvalidData`]),
    /// there is no memory for it, or the operation is cancelled.
    pub(crate) fn load(load: Load, bytes: u64, cancel: &Cancel) -> Result<Self, Unanswered> {
        let mut process = Copier::start(VERB, &AwayProcess::Load(load))?;
        match process.answer_unless(cancel, limit_for(bytes)) {
            Ok(()) => Ok(Self(process)),
            Err(error) => {
                // One that is late is in no program yet.
                process.kill();
                Err(error)
            }
        }
    }

    /// Gives their contents to the processes that CRIU has restored, each with its pid in the
    /// container. They must not run CUDA yet.
    ///
    /// # Errors
    /// A process has no hole where the image says: the driver must not be asked to restore it.
    pub(crate) fn fill(mut self, processes: &[(i32, ProcessRef)]) -> io::Result<()> {
        let of = |(pid, process): &(i32, ProcessRef)| (*pid, ProcessId::of(process));
        let restored: Restored = processes.iter().map(of).collect();
        self.0.step(restored, LIMIT)
    }
}
