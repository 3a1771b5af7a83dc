//! What the processes of a job share is asked of each, while they are locked.

use std::io;
use std::thread;
use std::time::Duration;

use stasis_config::GpuCheckpointPath;
use stasis_linux::ProcessRef;

use super::CopyingDriver;
use crate::cuda::CudaState;
use crate::cuda::process_set::as_found::ProcessId;
use crate::gpu_path::build;
use crate::gpu_path::copier::Copier;
use crate::gpu_path::process::{GpuCopy, VERB};
use crate::gpu_path::survey::{Holding, Survey};

/// Far more than 500 allocations take (0.1 s), and longer than an answer is waited for inside.
const LIMIT: Duration = Duration::from_secs(30);

impl CopyingDriver {
    /// Whether it will be known what each of these shares: their builds of libcuda have passed the
    /// self-test of surveys.
    pub(crate) fn knows_at_the_lock<'p>(
        &self,
        processes: impl IntoIterator<Item = &'p ProcessRef>,
    ) -> bool {
        self.settings.gpu_checkpoint.path == GpuCheckpointPath::Auto
            && processes
                .into_iter()
                .all(|process| build::is_surveyed(&self.settings, process))
    }

    /// What each of these locked processes has, in their order. Of one whose GPU state is in host
    /// memory it was asked when that was moved: it is left out.
    pub(crate) fn survey<'p>(
        &self,
        processes: &'p [ProcessRef],
    ) -> Vec<(&'p ProcessRef, io::Result<Holding>)> {
        thread::scope(|scope| {
            let asked = processes.iter().map(|process| {
                let asked = scope.spawn(move || self.survey_one(process));
                (process, asked)
            });
            let asked: Vec<_> = asked.collect();
            let answers = asked.into_iter().filter_map(|(process, asked)| {
                let held = asked
                    .join()
                    .unwrap_or_else(|_| Err(io::Error::other("the thread that asks has ended")));
                Some((process, held.transpose()?))
            });
            answers.collect()
        })
    }

    /// Notes of what was done in another way.
    pub(crate) fn add_notes(&self, notes: Vec<String>) {
        self.state().copying.notes.extend(notes);
    }

    fn survey_one(&self, process: &ProcessRef) -> io::Result<Option<Holding>> {
        // The thread has then just begun to wait for commands, in a call that it can make again.
        let state = self.driver.state(process).map_err(io::Error::other)?;
        if state != CudaState::Locked {
            return Ok(None);
        }
        let thread = self.driver.restore_thread(process);
        let job = GpuCopy::Survey(Survey {
            process: ProcessId::of(process),
            thread: thread.map_err(io::Error::other)?,
            records: self.records(),
        });
        Copier::start(VERB, &job)?.answer(LIMIT).map(Some)
    }
}
