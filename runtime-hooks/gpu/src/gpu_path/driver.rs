//! The driver, with its copying of GPU contents sped up where that is possible.

mod consumed;
mod devices;
mod imports;
mod into_files;
mod state;
mod survey;
mod while_loading;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stasis_config::{GpuCheckpointPath, Settings};
use stasis_injection::Span;
use stasis_linux::ProcessRef;

use super::copier::Copier;
use super::detached::Whereabouts;
use super::imports::is_given_up;
use super::process::{Direction, GpuCopy, Part, Step, VERB, online_cpus};
use super::records::{DIRECTORY, copied, has_record};
use super::share::Share;
use super::{build, contents_in_time, put_back};
use crate::cuda::process_set::arrivals::Arrivals;
use crate::cuda::process_set::initial_state::ProcessId;
use crate::cuda::{Copying, CudaError, CudaState, Driver, GpuMap};
pub use into_files::BESIDE;
use state::DriverState;
use while_loading::while_they_arrive;

/// The most time for a step of milliseconds. The processes stand still meanwhile.
const LIMIT: Duration = Duration::from_secs(10);

/// A driver that has many threads copy GPU contents, in its checkpoints into files in memory.
pub struct CopyingDriver {
    driver: Arc<dyn Driver>,
    settings: Settings,
    /// The operation's directory.
    directory: PathBuf,
    state: Mutex<DriverState>,
}

impl CopyingDriver {
    /// `directory` is the operation's.
    #[must_use]
    pub fn new(driver: Arc<dyn Driver>, settings: &Settings, directory: &Path) -> Self {
        Self {
            driver,
            settings: settings.clone(),
            directory: directory.to_owned(),
            state: Mutex::default(),
        }
    }

    /// Tries this node's driver, if it was not, before anything of these processes is locked.
    pub fn try_driver<'p>(&self, processes: impl IntoIterator<Item = &'p ProcessRef>) {
        let note = build::try_unknown(&self.settings, processes);
        self.state().copying.notes.extend(note);
    }

    fn start(
        &self,
        process: &ProcessRef,
        direction: Direction,
        share: Share,
    ) -> io::Result<Copier> {
        build::admit(&self.settings, process)?;
        let part = Part {
            process: ProcessId::of(process),
            direction,
            share,
            records: self.records(),
        };
        Copier::start(VERB, &GpuCopy::Take(part))
    }

    /// Arms a restore from the file of a process. A process with one CPU gets no help: the driver's
    /// own thread is enough for that.
    fn armed_for(&self, process: &ProcessRef, direction: Direction) -> io::Result<Option<Copier>> {
        let share = self.state().share(process);
        if matches!(direction, Direction::In) && share.of(online_cpus()) <= 1 {
            return Ok(None);
        }
        let mut copier = self.start(process, direction, share)?;
        copier.step::<()>(Step::Make, LIMIT)?;
        copier.step::<()>(Step::Arm, LIMIT)?;
        Ok(Some(copier))
    }

    fn arm_now(&self, process: &ProcessRef, direction: Direction) -> Option<Copier> {
        if self.settings.gpu_checkpoint.path == GpuCheckpointPath::Driver {
            return None;
        }
        self.armed_for(process, direction).unwrap_or_else(|error| {
            self.note(process, &error);
            None
        })
    }

    /// Whether the contents of a checkpointed process may be in a file of ours.
    fn may_be_in_file(&self, process: &ProcessRef) -> bool {
        let found = contents_in_time(process);
        if let Err(error) = &found {
            self.note(process, error);
        }
        may_be_in_file(&found)
    }

    /// Makes a call of the driver, and puts the process back after it, whatever its result.
    fn during(
        &self,
        process: &ProcessRef,
        copier: Option<Copier>,
        call: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        let result = call();
        if let Some(copier) = copier {
            self.put_back(process, copier);
        }
        result
    }

    /// Restores from a file that is still being loaded.
    fn restore_arriving(
        &self,
        process: &ProcessRef,
        arrivals: &Arrivals,
        restore: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        let may_wait = build::waits_for_loading(&self.settings, process);
        let copier = may_wait.then(|| self.arm_now(process, Direction::Arriving));
        if let Some(mut copier) = copier.flatten() {
            let restored = while_they_arrive(process, &mut copier, arrivals, restore, || {
                let _ = put_back(&self.directory);
            });
            self.put_back(process, copier);
            return restored;
        }
        if !arrivals.all_are_there() {
            return Err(CudaError::ContentsAway);
        }
        let copier = (!may_wait).then(|| self.arm_now(process, Direction::In));
        self.during(process, copier.flatten(), restore)
    }

    /// Puts the process back after a call.
    fn put_back(&self, process: &ProcessRef, mut copier: Copier) {
        let error = match copier.step::<u64>(Step::Disarm, LIMIT) {
            Ok(bytes) => {
                self.state().copying.shared_out += bytes;
                return;
            }
            Err(error) => error,
        };
        drop(copier);
        // The process was killed, or waits for something that does not end.
        let put = put_back(&self.directory);
        let now = match &put {
            Ok(()) => "it is now".to_owned(),
            Err(error) => error.to_string(),
        };
        let note = format!("{process} could not be put back at once ({error}): {now}");
        self.state().copying.notes.push(note);
    }

    fn note(&self, process: &ProcessRef, error: &io::Error) {
        let note = format!("the driver alone copies the GPU contents of {process}: {error}");
        self.state().copying.notes.push(note);
    }

    /// The gate: no process is restored or unlocked before it has all that a checkpoint has taken
    /// away from it, whoever asks (rollback, resume, the end of a suspend, a restore, recovery).
    fn lacks_nothing(&self, process: &ProcessRef) -> Result<(), CudaError> {
        match Whereabouts::of(process, &self.directory) {
            Whereabouts::InIt => Ok(()),
            Whereabouts::Detached => Err(CudaError::ContentsAway),
            Whereabouts::Lost => Err(CudaError::ContentsLost),
        }
    }

    fn records(&self) -> PathBuf {
        self.directory.join(DIRECTORY)
    }

    fn state(&self) -> MutexGuard<'_, DriverState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Driver for CopyingDriver {
    fn state(&self, process: &ProcessRef) -> Result<CudaState, CudaError> {
        self.driver.state(process)
    }

    fn restore_thread(&self, process: &ProcessRef) -> Result<i32, CudaError> {
        self.driver.restore_thread(process)
    }

    fn lock(&self, process: &ProcessRef, timeout: Duration) -> Result<(), CudaError> {
        self.driver.lock(process, timeout)
    }

    fn checkpoint(&self, process: &ProcessRef) -> Result<(), CudaError> {
        let armed = self.state().armed.remove(&ProcessId::of(process));
        let devices = self.devices(process);
        self.during(process, armed, || self.driver.checkpoint(process))?;
        self.make_readable(process, &devices);
        // A process with a record must not be dumped.
        match has_record(&self.records(), process) {
            true => Err(CudaError::NotPutBack),
            false => Ok(()),
        }
    }

    fn restore(&self, process: &ProcessRef, map: &GpuMap) -> Result<(), CudaError> {
        self.lacks_nothing(process)?;
        let own_files = self.own_files(process);
        let restore = || self.driver.restore(process, map);
        let arrivals = self.state().arrivals.clone();
        match (self.may_be_in_file(process), arrivals) {
            (true, Some(arrivals)) => self.restore_arriving(process, &arrivals, restore),
            (true, None) => self.during(process, self.arm_now(process, Direction::In), restore),
            (false, _) => restore(),
        }?;
        self.are_consumed(process, &own_files);
        Ok(())
    }

    fn expect_arrivals(&self, arrivals: &Arc<Arrivals>) {
        self.state().arrivals = Some(Arc::clone(arrivals));
    }

    fn copying(&self) -> Copying {
        std::mem::take(&mut self.state().copying)
    }

    fn copied(&self) -> u64 {
        copied(&self.records())
    }

    fn expect(&self, held: &[(ProcessRef, u64)]) {
        let expected = held
            .iter()
            .map(|(process, bytes)| (ProcessId::of(process), *bytes));
        self.state().expected = expected.collect();
    }

    fn shares_memory(&self, process: &ProcessRef) -> bool {
        is_given_up(&self.directory, process)
    }

    fn share_again(&self, _: &ProcessRef) -> Result<(), CudaError> {
        self.share_all_again()
    }

    fn unlock(&self, process: &ProcessRef) -> Result<(), CudaError> {
        self.lacks_nothing(process)?;
        self.shares_as_before(process)?;
        // A process that was armed and not checkpointed after all.
        drop(self.state().armed.remove(&ProcessId::of(process)));
        self.driver.unlock(process)
    }
}

impl fmt::Debug for CopyingDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyingDriver")
            .field("directory", &self.directory)
            .finish_non_exhaustive()
    }
}

/// A file that cannot be seen may still be without its contents.
fn may_be_in_file(found: &io::Result<Vec<Span>>) -> bool {
    !matches!(found, Ok(contents) if contents.is_empty())
}

#[cfg(test)]
mod tests;
