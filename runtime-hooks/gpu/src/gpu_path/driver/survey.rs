//! Asks the processes of a job what they share, while they are locked.

use std::io;
use std::time::Duration;

use serde::de::DeserializeOwned;
use stasis_linux::ProcessRef;

use super::CopyingDriver;
use crate::cuda::CudaState;
use crate::cuda::process_set::initial_state::ProcessId;
use crate::gpu_path::build;
use crate::gpu_path::copier::Copier;
use crate::gpu_path::imports::Asked;
use crate::gpu_path::process::{GpuCopy, VERB};
use crate::gpu_path::put_back;
use crate::gpu_path::survey::{Survey, Surveyed};

/// The most time: 500 allocations take 0.1 s. Longer than the survey itself waits for an answer.
const LIMIT: Duration = Duration::from_secs(30);

impl CopyingDriver {
    /// Whether the shared memory of all these processes will be known at the lock: their builds of
    /// libcuda have passed the self-test of surveys.
    pub fn knows_at_the_lock<'p>(
        &self,
        processes: impl IntoIterator<Item = &'p ProcessRef>,
    ) -> bool {
        let mut processes = processes.into_iter();
        let is_known = processes.all(|process| build::is_surveyed(&self.settings, process));
        self.state().is_to_be_surveyed |= is_known;
        is_known
    }

    /// Whether [`Self::knows_at_the_lock`] has said so of any processes.
    pub fn was_to_survey(&self) -> bool {
        self.state().is_to_be_surveyed
    }

    /// Returns what these processes have and share, in their order. They are LOCKED: a process
    /// whose GPU state is in host memory was asked when that was moved.
    ///
    /// # Errors
    /// Nothing is known of any process.
    pub fn survey(&self, locked: &[ProcessRef]) -> io::Result<Surveyed> {
        let job = GpuCopy::Survey(Survey {
            asked: self.asked(locked)?,
            records: self.records(),
        });
        self.visit(&job, LIMIT)
    }

    /// Has a process of its own do work in locked processes. If that process is killed, what it
    /// leaves in them is removed before others unlock them: code, and tags in their GPU memory.
    pub(super) fn visit<T: DeserializeOwned>(
        &self,
        job: &GpuCopy,
        limit: Duration,
    ) -> io::Result<T> {
        let done = Copier::start(VERB, job)?.answer_or_end(limit);
        if done.is_err() {
            put_back(&self.directory)?;
        }
        done
    }

    /// Returns the LOCKED ones of these processes.
    pub fn locked_of(&self, processes: &[ProcessRef]) -> io::Result<Vec<ProcessRef>> {
        let mut locked = Vec::with_capacity(processes.len());
        for process in processes {
            // The checkpoint thread has then just begun to wait for commands, in a call that it can
            // make again.
            let state = self.driver.state(process).map_err(io::Error::other)?;
            if state == CudaState::Locked {
                locked.push(process.clone());
            }
        }
        Ok(locked)
    }

    /// Adds notes of work that was done in another way.
    pub fn add_notes(&self, notes: Vec<String>) {
        self.state().copying.notes.extend(notes);
    }

    /// Pairs each process with its checkpoint thread.
    pub(super) fn asked(&self, processes: &[ProcessRef]) -> io::Result<Vec<Asked>> {
        let each = processes.iter().map(|process| {
            let thread = self.driver.restore_thread(process);
            Ok(Asked {
                process: ProcessId::of(process),
                thread: thread.map_err(io::Error::other)?,
            })
        });
        each.collect()
    }
}
