//! Operations on one process, as in NVIDIA's program.
//!
//! No watchdog here: CRIU's plugin makes these calls with every thread of the process stopped
//! except the restore thread, and has its own timeout.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use stasis_engine::operation::directories;
use stasis_engine::suspend::{Action, refuse_held};
use stasis_gpu::cuda::failure::{ProcessFailure, Step};
use stasis_gpu::cuda::watchdog::{CallLimits, MARGIN, WatchedDriver};
use stasis_gpu::cuda::{CudaError, CudaState, Driver};
use stasis_gpu::gpu_path::is_lacking;
use stasis_linux::ProcessRef;
use stasis_linux::procfs::Status;

use super::arguments::{Arguments, Operation};
use super::{Error, word};

/// Carries the operation out and returns its answer, which may be empty. `state_dir` has the
/// records of containers.
pub(super) fn run(
    driver: &Arc<dyn Driver>,
    pid: i32,
    arguments: &Arguments,
    state_dir: &Path,
) -> Result<String, Error> {
    let target = Target {
        driver,
        state_dir,
        process: open(pid)?,
        arguments,
    };
    let process = &target.process;
    let restore_thread = || driver.restore_thread(process);
    let operation = arguments.operation();
    if operation == Operation::RestoreThread {
        let thread = restore_thread().map_err(|error| target.explain(Step::Query, error))?;
        return Ok(format!("{thread}\n"));
    }
    refuse_held(process, || restore_thread().ok())?;
    match operation {
        Operation::State => return Ok(format!("{}\n", word(target.state()?))),
        Operation::Step(action) => target.step(action)?,
        Operation::Toggle => target.toggle()?,
        Operation::RestoreThread => {}
    }
    Ok(String::new())
}

/// Opens the process with this pid, or with a thread of this id: CRIU's plugin asks for the state
/// of the restore thread.
fn open(pid: i32) -> Result<ProcessRef, Error> {
    let unreadable = |source| Error::Unreadable { pid, source };
    let status = Status::of(pid).map_err(unreadable)?;
    let process = status.and_then(|status| status.process());
    let process = process.ok_or(Error::NoProcess(pid))?;
    let opened = ProcessRef::open(process).map_err(unreadable)?;
    opened.ok_or(Error::NoProcess(pid))
}

struct Target<'a> {
    driver: &'a Arc<dyn Driver>,
    state_dir: &'a Path,
    process: ProcessRef,
    arguments: &'a Arguments,
}

impl Target<'_> {
    fn state(&self) -> Result<CudaState, Error> {
        let state = self.driver.state(&self.process);
        state.map_err(|error| self.explain(Step::Query, error))
    }

    /// Whether its container's operation has taken memory from it.
    fn lacks_memory(&self) -> bool {
        let records = directories(self.state_dir).unwrap_or_default();
        let mut records = records.iter();
        records.any(|directory| is_lacking(directory, &self.process))
    }

    fn step(&self, action: Action) -> Result<(), Error> {
        let process = &self.process;
        let (step, result) = match action {
            Action::Restore if self.lacks_memory() => {
                (Step::Restore, Err(CudaError::SharedMemoryAway))
            }
            Action::Unlock if self.lacks_memory() => {
                (Step::Unlock, Err(CudaError::SharedMemoryAway))
            }
            Action::Lock => {
                let timeout = self.arguments.lock_timeout().unwrap_or(Duration::MAX);
                (Step::Lock, self.driver.lock(process, timeout))
            }
            Action::Checkpoint => (Step::Checkpoint, self.driver.checkpoint(process)),
            Action::Restore => {
                let map = self.arguments.map();
                (Step::Restore, self.driver.restore(process, &map))
            }
            Action::Unlock => (Step::Unlock, self.driver.unlock(process)),
        };
        result.map_err(|error| self.explain(step, error))
    }

    fn toggle(&self) -> Result<(), Error> {
        match self.state()? {
            CudaState::Running => {
                self.step(Action::Lock)?;
                self.driver.checkpoint(&self.process).map_err(|error| {
                    // The error reports the state after this.
                    let _ = self.driver.unlock(&self.process);
                    self.explain(Step::Checkpoint, error)
                })
            }
            CudaState::Checkpointed => {
                self.step(Action::Restore)?;
                self.step(Action::Unlock)
            }
            state => Err(Error::NoToggle {
                pid: self.process.pid(),
                name: self.process.name().to_owned(),
                state,
                advice: match state {
                    CudaState::Locked => {
                        "; --action unlock continues it, --action checkpoint frees its GPU"
                    }
                    _ => "",
                },
            }),
        }
    }

    /// Describes the driver's error, the process's state now, and advice.
    fn explain(&self, step: Step, error: CudaError) -> Error {
        if error == CudaError::NotInitialized {
            return Error::NoCuda {
                pid: self.process.pid(),
                name: self.process.name().to_owned(),
                error,
            };
        }
        let fault = ProcessFailure::of(step, &self.process, error);
        // After the failed call the process may be unable to answer.
        let limits = CallLimits {
            answer: MARGIN,
            work: MARGIN,
        };
        let watched = WatchedDriver::new(Arc::clone(self.driver), limits);
        let now = match watched.state(&self.process) {
            _ if self.process.is_gone() => "gone".to_owned(),
            Ok(state) => word(state),
            Err(error) => format!("in a state that the driver does not report ({error})"),
        };
        let advice = match (step, now.as_str()) {
            (Step::Checkpoint, "locked") => "; --action unlock continues it",
            _ => advice(step, error),
        };
        Error::Call { fault, now, advice }
    }
}

/// Returns advice about a driver error.
fn advice(step: Step, error: CudaError) -> &'static str {
    match (step, error) {
        (_, CudaError::SharedMemoryAway) => "; its processes can only go on together: --container",
        (Step::Lock, CudaError::NotReady) => {
            "; its submitted work did not finish in time. Processes that wait for each other can \
             only be locked together: --container"
        }
        (Step::Lock, CudaError::IllegalState) => "; only a running process can be locked",
        (Step::Checkpoint, CudaError::IllegalState) => {
            "; only a locked process can be checkpointed"
        }
        (Step::Restore, CudaError::IllegalState) => "; only a checkpointed process can be restored",
        (Step::Unlock, CudaError::IllegalState) => "; only a locked process can be unlocked",
        (Step::Restore, CudaError::InvalidValue) => {
            "; a device map has to name every GPU that the process saw, also those that stay"
        }
        (Step::Restore, CudaError::OutOfMemory) => {
            "; its GPU has no room, and no later restore of it will succeed: end it"
        }
        (_, CudaError::OperatingSystem) => {
            "; it needs root, and fails after an earlier failed restore"
        }
        (_, CudaError::NotPermitted) => "; it needs root and persistence mode (nvidia-smi -pm 1)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stands_for_its_process() {
        let own = i32::try_from(std::process::id()).unwrap();
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let thread = nix::unistd::gettid().as_raw();
                send.send((thread, open(thread).map(|process| process.pid())))
                    .unwrap();
            });
            let (thread, found) = receive.recv().unwrap();
            assert_ne!(thread, own);
            assert_eq!(found.unwrap(), own);
        });
        assert!(matches!(open(i32::MAX), Err(Error::NoProcess(_))));
    }
}
