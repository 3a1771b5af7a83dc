//! What is done to one process, as NVIDIA's program does it.
//!
//! No watchdog here: CRIU's plugin calls with every thread of the process stopped but the one that does
//! the driver's work, and bounds the time itself.

use std::sync::Arc;
use std::time::Duration;

use super::arguments::{Action, Arguments, Operation};
use super::reach::{held, open};
use super::{Error, word};
use crate::cuda::{CudaError, CudaState, Driver};
use crate::fault::{Fault, Step};
use crate::process::ProcessRef;
use crate::watchdog::{CallLimits, MARGIN, WatchedDriver};

/// Does what is asked for; the answer, if it has one.
pub(super) fn run(
    driver: &Arc<dyn Driver>,
    pid: i32,
    arguments: &Arguments,
) -> Result<String, Error> {
    let target = Target {
        driver,
        process: open(pid)?,
        arguments,
    };
    let process = &target.process;
    let restore_thread = || driver.restore_thread(process.pid());
    let operation = arguments.operation();
    if operation == Operation::RestoreThread {
        let thread = restore_thread().map_err(|error| target.explain(Step::Look, error))?;
        return Ok(format!("{thread}\n"));
    }
    if let Some(held) = held(process, || restore_thread().ok())? {
        return Err(Error::Held {
            pid: process.pid(),
            name: process.name().to_owned(),
            held,
        });
    }
    match operation {
        Operation::State => return Ok(format!("{}\n", word(target.state()?))),
        Operation::Step(action) => target.step(action)?,
        Operation::Toggle => target.toggle()?,
        Operation::RestoreThread => {}
    }
    Ok(String::new())
}

struct Target<'a> {
    driver: &'a Arc<dyn Driver>,
    process: ProcessRef,
    arguments: &'a Arguments,
}

impl Target<'_> {
    fn state(&self) -> Result<CudaState, Error> {
        let state = self.driver.state(self.process.pid());
        state.map_err(|error| self.explain(Step::Look, error))
    }

    fn step(&self, action: Action) -> Result<(), Error> {
        let pid = self.process.pid();
        let (step, result) = match action {
            Action::Lock => {
                let timeout = self.arguments.lock_timeout().unwrap_or(Duration::MAX);
                (Step::Lock, self.driver.lock(pid, timeout))
            }
            Action::Checkpoint => (Step::Checkpoint, self.driver.checkpoint(pid)),
            Action::Restore => {
                let map = self.arguments.map();
                (Step::Restore, self.driver.restore(pid, &map))
            }
            Action::Unlock => (Step::Unlock, self.driver.unlock(pid)),
        };
        result.map_err(|error| self.explain(step, error))
    }

    fn toggle(&self) -> Result<(), Error> {
        match self.state()? {
            CudaState::Running => {
                self.step(Action::Lock)?;
                let pid = self.process.pid();
                self.driver.checkpoint(pid).map_err(|error| {
                    // The error tells what it is after this.
                    let _ = self.driver.unlock(pid);
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
                        "; --action unlock lets it go on, --action checkpoint frees its GPU"
                    }
                    _ => "",
                },
            }),
        }
    }

    /// What the driver said, how things are now, and what to do.
    fn explain(&self, step: Step, error: CudaError) -> Error {
        if error == CudaError::NotInitialized {
            return Error::NoCuda {
                pid: self.process.pid(),
                name: self.process.name().to_owned(),
                error,
            };
        }
        let fault = Fault::of(step, &self.process, error);
        // The failed call may have left it unable to answer.
        let limits = CallLimits {
            answer: MARGIN,
            work: MARGIN,
        };
        let watched = WatchedDriver::new(Arc::clone(self.driver), limits);
        let now = match watched.state(self.process.pid()) {
            _ if self.process.is_gone() => "gone".to_owned(),
            Ok(state) => word(state),
            Err(error) => format!("in a state that the driver does not tell ({error})"),
        };
        let advice = match (step, now.as_str()) {
            (Step::Checkpoint, "locked") => "; --action unlock lets it go on",
            _ => advice(step, error),
        };
        Error::Call { fault, now, advice }
    }
}

/// What to do about an answer of the driver.
fn advice(step: Step, error: CudaError) -> &'static str {
    match (step, error) {
        (Step::Lock, CudaError::NotReady) => {
            "; its submitted work did not finish in time. Processes that wait for each other can only \
             be locked together: --tree or --container"
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
        (_, CudaError::OperatingSystem) => "; it takes root, and no restore that failed before",
        (_, CudaError::NotPermitted) => "; it takes root and persistence mode (nvidia-smi -pm 1)",
        _ => "",
    }
}
