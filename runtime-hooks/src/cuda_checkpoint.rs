//! NVIDIA's `cuda-checkpoint`, as an operator and CRIU's CUDA plugin call it: the same options, output
//! and exit codes, and error texts that say how things are now.
//!
//! What is ours: `--tree` and `--container`, which act on all CUDA processes together.

mod arguments;
mod group;
mod reach;
mod room;
mod single;

use std::ffi::OsString;
use std::io::{self, Write};
use std::sync::Arc;

use clap::Parser;
use stasis_config::{Settings, SettingsError};

use crate::blocker::Blockers;
use crate::cuda::{CudaDriver, CudaState, Driver, OpenError};
use crate::error::{Refusal, chain};
use crate::fault::Fault;
use crate::host_memory::NoHostMemory;
use crate::locate::LocateError;
use crate::operation::OperationError;
use arguments::Arguments;

/// The name by which it has to be called.
pub const NAME: &str = "cuda-checkpoint";

/// As NVIDIA's program: every failure is 1.
const FAILURE: u8 = 1;

/// Why it failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Driver(#[from] OpenError),
    #[error("there is no process {0}")]
    NoProcess(i32),
    #[error("cannot look at process {pid}")]
    Look {
        pid: i32,
        #[source]
        source: io::Error,
    },
    #[error("process {pid} ({name}) has no CUDA state: the driver says {error}")]
    NoCuda {
        pid: i32,
        name: String,
        error: crate::cuda::CudaError,
    },
    #[error("process {pid} ({name}) {held}, and would not answer the driver; nothing was done")]
    Held {
        pid: i32,
        name: String,
        held: reach::Held,
    },
    #[error("{fault}; it is {now} now{advice}")]
    Call {
        fault: Fault,
        now: String,
        advice: &'static str,
    },
    #[error("process {pid} ({name}) is {}: a toggle goes from running to checkpointed and back{advice}", word(*.state))]
    NoToggle {
        pid: i32,
        name: String,
        state: CudaState,
        advice: &'static str,
    },
    #[error(transparent)]
    Locate(#[from] LocateError),
    #[error(transparent)]
    Operation(#[from] OperationError),
    #[error("no process of {0} uses CUDA")]
    NoMembers(String),
    #[error("not all processes of {of} are {wanted}: {states}; nothing was done")]
    Mixed {
        of: String,
        wanted: &'static str,
        states: String,
    },
    #[error("{0}; nothing was done")]
    Blocked(#[from] Blockers),
    #[error("{0}; nothing was done")]
    NoHostMemory(#[from] NoHostMemory),
    #[error("{0}; nothing was done")]
    Refused(Box<Refusal>),
    #[error("{0}; nothing was done")]
    Untouched(Fault),
    #[error("{fault}; {}", outcome(.lost))]
    Group { fault: Fault, lost: Vec<Fault> },
    #[error("a signal asked for it to end; {}", outcome(.lost))]
    Cancelled { lost: Vec<Fault> },
    #[error("cannot prepare for signals, or write the answer")]
    Io(#[from] io::Error),
}

fn outcome(lost: &[Fault]) -> String {
    if lost.is_empty() {
        return "all processes run, with their GPU".to_owned();
    }
    let lost: Vec<String> = lost.iter().map(ToString::to_string).collect();
    format!("these could not be brought back: {}", lost.join("; "))
}

/// Does what the command line says; the exit code.
#[must_use]
pub fn main(args: impl Iterator<Item = OsString>) -> u8 {
    let arguments = match Arguments::try_parse_from(args) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help is no failure, and goes to standard output.
            let _ = error.print();
            return if error.use_stderr() { FAILURE } else { 0 };
        }
    };
    match run(&arguments) {
        Ok(answer) => match io::stdout().write_all(answer.as_bytes()) {
            Ok(()) => 0,
            Err(_) => FAILURE,
        },
        Err(error) => {
            let _ = writeln!(io::stderr(), "{NAME}: {}", chain(&error));
            FAILURE
        }
    }
}

/// The answer: nothing for what changes something, so that callers can take the output for a value.
fn run(arguments: &Arguments) -> Result<String, Error> {
    let settings = Settings::load(None)?;
    match arguments.target.pid {
        Some(pid) => {
            let driver = CudaDriver::open(settings.driver.libcuda.as_deref())?;
            single::run(&(Arc::new(driver) as Arc<dyn Driver>), pid, arguments)
        }
        None => group::run(settings, arguments),
    }
}

/// As NVIDIA's program writes states.
fn word(state: CudaState) -> String {
    match state {
        CudaState::Unknown(raw) => format!("unknown ({raw})"),
        known => known.to_string().to_lowercase(),
    }
}

#[cfg(test)]
mod tests;
