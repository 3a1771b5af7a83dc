//! Makes the files for GPU contents, and leads the driver's next checkpoints into them.

use std::io;
use std::thread;

use stasis_config::GpuCheckpointPath;
use stasis_linux::ProcessRef;
use stasis_linux::numa::NumaNode;

use super::{CopyingDriver, LIMIT};
use crate::cuda::process_set::initial_state::ProcessId;
use crate::gpu_path::copier::Copier;
use crate::gpu_path::new_file::NewFiles;
use crate::gpu_path::process::{Direction, Step};
use crate::gpu_path::share::Share;

/// The driver asks for 9 MiB beside the bytes that NVML lists for a process (measured on driver
/// 580.159); the surplus goes back to the machine.
pub const BESIDE: u64 = 64 << 20;

/// A file that waits for the contents of a process.
pub(super) struct Made {
    copier: Copier,
    bytes: u64,
}

impl CopyingDriver {
    /// Makes a file for the contents of each process, with the bytes that it holds on its GPUs;
    /// `near` returns the NUMA node near to them. The processes run meanwhile, and nothing of them
    /// is changed. A process for which this fails is checkpointed by the driver alone.
    pub fn make(
        &self,
        processes: &[(ProcessRef, u64)],
        files: &NewFiles,
        near: impl Fn(&ProcessRef) -> Option<NumaNode>,
    ) {
        if self.settings.gpu_checkpoint.path == GpuCheckpointPath::Driver {
            return;
        }
        let all = processes.iter().map(|(_, bytes)| bytes).sum();
        let make = |process: &ProcessRef, bytes: u64, near, number| -> io::Result<Made> {
            let share = Share::new(bytes, all);
            let (bytes, file) = (bytes.saturating_add(BESIDE), files.file(number)?);
            let out = Direction::Out { bytes, file, near };
            let mut copier = self.start(process, out, share)?;
            copier.step::<()>(Step::Make, self.settings.deadlines.driver())?;
            Ok(Made { copier, bytes })
        };
        thread::scope(|scope| {
            for (number, (process, bytes)) in processes.iter().enumerate() {
                let near = near(process);
                scope.spawn(move || match make(process, *bytes, near, number) {
                    Ok(made) => drop(self.state().made.insert(ProcessId::of(process), made)),
                    Err(error) => self.is_alone(process, &error),
                });
            }
        });
    }

    /// Whether a file was made for a process.
    pub fn has_file(&self, process: &ProcessRef) -> bool {
        self.state().made.contains_key(&ProcessId::of(process))
    }

    /// Returns why a process has no file, if that is known.
    pub fn why_alone(&self, process: &ProcessRef) -> Option<String> {
        self.state().alone.get(&ProcessId::of(process)).cloned()
    }

    fn is_alone(&self, process: &ProcessRef, error: &io::Error) {
        let why = error.to_string();
        self.state().alone.insert(ProcessId::of(process), why);
        self.note(process, error);
    }

    /// Has the driver's next checkpoint of each locked process, which holds so many bytes, put its
    /// contents into its file. Returns the processes that the driver checkpoints alone.
    pub fn arm(&self, processes: &[(ProcessRef, u64)]) -> Vec<ProcessRef> {
        thread::scope(|scope| {
            for (process, bytes) in processes {
                scope.spawn(move || match self.arm_one(process, *bytes) {
                    Ok(()) => {}
                    Err(error) => self.is_alone(process, &error),
                });
            }
        });
        // Files of processes that have ended.
        self.state().made.clear();
        let state = self.state();
        let is_alone = |process: &&ProcessRef| !state.armed.contains_key(&ProcessId::of(process));
        let processes = processes.iter().map(|(process, _)| process);
        processes.filter(is_alone).cloned().collect()
    }

    /// Undoes [`Self::make`] and [`Self::arm`]: the driver is to copy these processes alone.
    pub fn disarm(&self) {
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
}
