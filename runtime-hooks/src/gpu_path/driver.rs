//! The driver, with its copying of GPU contents sped up where that can be.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use stasis_config::{GpuCheckpointPath, Settings};
use stasis_injection::contents_of;
use stasis_linux::ProcessRef;

use super::copier::Copier;
use super::new_file::NewFiles;
use super::process::{Direction, GpuCopy, Part, Step, VERB};
use super::records::{DIRECTORY, copied, has_record};
use super::{build, hole, put_back};
use crate::cuda::process_set::as_found::ProcessId;
use crate::cuda::{Copying, CudaError, CudaState, Driver, GpuMap};

/// For what takes milliseconds. The processes stand still meanwhile.
const LIMIT: Duration = Duration::from_secs(10);
/// What the driver asks for beside what NVML says that a process uses is 9 MiB (measured on driver
/// 580.159); what is too much goes back to the machine.
pub(crate) const BESIDE: u64 = 64 << 20;

/// A driver that has GPU contents copied by many threads, in its checkpoints into files in memory.
pub struct CopyingDriver {
    driver: Arc<dyn Driver>,
    settings: Settings,
    /// The operation's.
    directory: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    made: BTreeMap<ProcessId, Made>,
    armed: BTreeMap<ProcessId, Copier>,
    /// What is checkpointed or restored next.
    expected: BTreeMap<ProcessId, u64>,
    copying: Copying,
}

/// A file that waits for the contents of a process.
struct Made {
    copier: Copier,
    bytes: u64,
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

    /// Before anything of these processes is locked: has this node's driver tried, if it was not.
    pub(crate) fn try_driver(&self, processes: &[(ProcessRef, u64)]) {
        if self.settings.gpu_checkpoint.path == GpuCheckpointPath::Auto {
            let processes = processes.iter().map(|(process, _)| process);
            let note = build::try_unknown(&self.settings, processes);
            self.state().copying.notes.extend(note);
        }
    }

    /// Makes a file for the contents of each process, which holds so many bytes on its GPUs. The
    /// processes run meanwhile, and nothing of them is changed. Those for which it fails are
    /// checkpointed by the driver alone.
    pub(crate) fn make(&self, processes: &[(ProcessRef, u64)], files: &NewFiles) {
        if self.settings.gpu_checkpoint.path == GpuCheckpointPath::Driver {
            return;
        }
        let together = processes.len() as u64;
        let make = |process: &ProcessRef, bytes: u64, number| -> io::Result<Made> {
            let (bytes, file) = (bytes.saturating_add(BESIDE), files.file(number)?);
            let mut copier = self.start(process, Direction::Out { bytes, file }, together)?;
            copier.step::<()>(Step::Make, self.settings.deadlines.driver())?;
            Ok(Made { copier, bytes })
        };
        thread::scope(|scope| {
            for (number, (process, bytes)) in processes.iter().enumerate() {
                scope.spawn(move || match make(process, *bytes, number) {
                    Ok(made) => drop(self.state().made.insert(ProcessId::of(process), made)),
                    Err(error) => self.note(process, &error),
                });
            }
        });
    }

    /// Whether there is a file for a process.
    pub(crate) fn has_file(&self, process: &ProcessRef) -> bool {
        self.state().made.contains_key(&ProcessId::of(process))
    }

    /// Has the driver's next checkpoint of each of these locked processes, which hold so many
    /// bytes, put their contents into its file. Returns those that the driver checkpoints alone.
    pub(crate) fn arm(&self, processes: &[(ProcessRef, u64)]) -> Vec<ProcessRef> {
        thread::scope(|scope| {
            for (process, bytes) in processes {
                scope.spawn(move || match self.arm_one(process, *bytes) {
                    Ok(()) => {}
                    Err(error) => self.note(process, &error),
                });
            }
        });
        // Of those that have ended.
        self.state().made.clear();
        let state = self.state();
        let is_alone = |process: &&ProcessRef| !state.armed.contains_key(&ProcessId::of(process));
        let processes = processes.iter().map(|(process, _)| process);
        processes.filter(is_alone).cloned().collect()
    }

    /// Undoes [`Self::make`] and [`Self::arm`]: the driver alone is to know of these processes.
    pub(crate) fn disarm(&self) {
        let made = std::mem::take(&mut self.state().made);
        let armed = std::mem::take(&mut self.state().armed);
        drop((made, armed));
    }

    fn arm_one(&self, process: &ProcessRef, bytes: u64) -> io::Result<()> {
        let id = ProcessId::of(process);
        let Some(Made {
            mut copier,
            bytes: made,
        }) = self.state().made.remove(&id)
        else {
            return Ok(());
        };
        if bytes.saturating_add(BESIDE / 2) > made {
            let grown = format!(
                "it holds {} MiB now, more than there is room for",
                bytes >> 20
            );
            return Err(io::Error::other(grown));
        }
        copier.step::<()>(Step::Arm, LIMIT)?;
        self.state().armed.insert(id, copier);
        Ok(())
    }

    fn start(
        &self,
        process: &ProcessRef,
        direction: Direction,
        together: u64,
    ) -> io::Result<Copier> {
        build::admit(&self.settings, process)?;
        let part = Part {
            process: ProcessId::of(process),
            direction,
            together,
            records: self.records(),
        };
        Copier::start(VERB, &GpuCopy::Take(part))
    }

    /// For a restore, or for a checkpoint into memory of the process. Nobody helps with little.
    fn armed_for(&self, process: &ProcessRef, is_in_file: bool) -> io::Result<Option<Copier>> {
        let (bytes, together) = {
            let expected = &self.state().expected;
            let bytes = expected.get(&ProcessId::of(process)).copied();
            (bytes.unwrap_or_default(), expected.len() as u64)
        };
        let direction = match is_in_file {
            true => Direction::In,
            false if bytes >> 20 >= self.settings.gpu_checkpoint.minimum_mib => Direction::Own,
            false => return Ok(None),
        };
        let mut copier = self.start(process, direction, together)?;
        copier.step::<()>(Step::Make, LIMIT)?;
        copier.step::<()>(Step::Arm, LIMIT)?;
        Ok(Some(copier))
    }

    fn arm_now(&self, process: &ProcessRef) -> Option<Copier> {
        if self.settings.gpu_checkpoint.path == GpuCheckpointPath::Driver {
            return None;
        }
        let armed =
            contents_of(process).and_then(|contents| self.armed_for(process, !contents.is_empty()));
        armed.unwrap_or_else(|error| {
            self.note(process, &error);
            None
        })
    }

    /// Makes a call of the driver, and puts the process back after it, whatever it says.
    fn during(
        &self,
        process: &ProcessRef,
        copier: Option<Copier>,
        call: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        let result = call();
        let Some(mut copier) = copier else {
            return result;
        };
        let error = match copier.step::<u64>(Step::Disarm, LIMIT) {
            Ok(bytes) => {
                self.state().copying.shared_out += bytes;
                return result;
            }
            Err(error) => error,
        };
        drop(copier);
        // It was killed, or waits for what does not end.
        let put = put_back(&self.directory);
        let now = match &put {
            Ok(()) => "it is now".to_owned(),
            Err(error) => error.to_string(),
        };
        let note = format!("{process} could not be put back at once ({error}): {now}");
        self.state().copying.notes.push(note);
        result
    }

    fn note(&self, process: &ProcessRef, error: &io::Error) {
        let note = format!("the driver alone copies the GPU contents of {process}: {error}");
        self.state().copying.notes.push(note);
    }

    fn records(&self) -> PathBuf {
        self.directory.join(DIRECTORY)
    }

    fn state(&self) -> MutexGuard<'_, State> {
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
        let armed = armed.or_else(|| self.arm_now(process));
        self.during(process, armed, || self.driver.checkpoint(process))?;
        // It must not be dumped so.
        match has_record(&self.records(), process) {
            true => Err(CudaError::NotPutBack),
            false => Ok(()),
        }
    }

    fn restore(&self, process: &ProcessRef, map: &GpuMap) -> Result<(), CudaError> {
        if hole::is_away(&self.directory, process) {
            return Err(CudaError::ContentsAway);
        }
        let armed = self.arm_now(process);
        self.during(process, armed, || self.driver.restore(process, map))
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

    fn unlock(&self, process: &ProcessRef) -> Result<(), CudaError> {
        // One that was armed and not checkpointed after all.
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
