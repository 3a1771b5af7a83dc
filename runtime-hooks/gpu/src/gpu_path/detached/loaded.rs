//! The operation's end of a process that loads the GPU contents of an image.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use stasis_host::cancel::Cancel;
use stasis_linux::ProcessRef;

use super::limit_for;
use super::load::{Arrived, Load, Restored, Until};
use super::process::{DetachedProcess, VERB};
use crate::cuda::process_set::arrivals::Arrivals;
use crate::cuda::process_set::initial_state::ProcessId;
use crate::gpu_path::copier::{Copier, Unanswered};

/// The most time for a step of milliseconds for each process.
const LIMIT: Duration = Duration::from_secs(60);

/// A process that loads, once it has all contents, or only their files.
#[derive(Debug)]
pub struct Loaded {
    process: Copier,
    until: Until,
    began: Instant,
    bytes: u64,
    cancel: Cancel,
}

/// Contents that their processes have, and that may still be loaded.
#[derive(Debug)]
pub struct Arriving {
    arrivals: Arc<Arrivals>,
    is_given_up: Arc<AtomicBool>,
    hears: Option<JoinHandle<Result<(), Unanswered>>>,
}

impl Loaded {
    /// Loads the contents of the holes of an image, of `bytes`, and verifies them, unless the
    /// operation is cancelled before; or only begins to.
    ///
    /// # Errors
    /// [`Unanswered`]: a part of the image is damaged or missing ([`io::ErrorKind::InvalidData`]),
    /// there is no memory for it, or the operation is cancelled.
    pub fn load(load: Load, bytes: u64, cancel: &Cancel) -> Result<Self, Unanswered> {
        let (began, until) = (Instant::now(), load.until.clone());
        let mut process = Copier::start(VERB, &DetachedProcess::Load(load))?;
        match process.answer_unless(|| cancel.requested(), limit_for(bytes)) {
            Ok(()) => Ok(Self {
                process,
                until,
                began,
                bytes,
                cancel: cancel.clone(),
            }),
            Err(error) => {
                // A late process works in no program yet.
                process.kill();
                Err(error)
            }
        }
    }

    /// Maps the contents in the processes that CRIU has restored, each with its pid in the
    /// container. They must not run CUDA yet.
    ///
    /// # Errors
    /// A process has no hole where the image has one: the driver must not be asked to restore it.
    pub fn map(mut self, processes: &[(i32, ProcessRef)]) -> io::Result<Option<Arriving>> {
        let of = |(pid, process): &(i32, ProcessRef)| (*pid, ProcessId::of(process));
        let restored: Restored = processes.iter().map(of).collect();
        self.process.step::<()>(restored, LIMIT)?;
        Ok(match self.until {
            Until::Loaded(_) => None,
            Until::Begun => Some(Arriving::hear(self)),
        })
    }
}

impl Arriving {
    fn hear(mut loaded: Loaded) -> Self {
        let arrivals = Arc::new(Arrivals::new(loaded.began, loaded.bytes));
        let is_given_up = Arc::new(AtomicBool::new(false));
        let (told, given_up) = (Arc::clone(&arrivals), Arc::clone(&is_given_up));
        let hears = thread::spawn(move || {
            let is_over = || given_up.load(Ordering::Relaxed) || loaded.cancel.requested();
            let limit = limit_for(loaded.bytes);
            let result = loop {
                match loaded.process.answer_unless(is_over, limit) {
                    Ok(Arrived::Missing(missing)) => {
                        told.set(missing.into_iter().collect::<BTreeMap<_, _>>());
                    }
                    Ok(Arrived::All) => break Ok(()),
                    Err(error) => {
                        loaded.process.kill();
                        break Err(error);
                    }
                }
            };
            told.over(&result);
            result
        });
        Self {
            arrivals,
            is_given_up,
            hears: Some(hears),
        }
    }

    /// The progress, for the driver that copies the contents.
    pub fn arrivals(&self) -> &Arc<Arrivals> {
        &self.arrivals
    }

    /// Waits until all are loaded, and verified. Before that no process may go on.
    ///
    /// # Errors
    /// [`Unanswered`]: the contents in processes are not the stored ones.
    pub fn finish(mut self) -> Result<(), Unanswered> {
        let heard = self.hears.take().map(JoinHandle::join);
        heard.unwrap_or(Ok(Ok(()))).unwrap_or_else(|_| {
            let panicked = io::Error::other("who hears of the loading has panicked");
            Err(Unanswered::Failed(panicked))
        })
    }
}

impl Drop for Arriving {
    /// Ends the loading: the rest is not needed.
    fn drop(&mut self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }
}
