//! NVIDIA's `cuda-checkpoint` for operators and CRIU's CUDA plugin: the same options, output and
//! exit codes, with error texts that report the state after a failure.
//!
//! Our addition is `--container`, which acts on all CUDA processes of one together.

mod arguments;
mod job;
mod process;

use std::ffi::OsString;
use std::io::{self, Write};
use std::sync::Arc;

use clap::{CommandFactory, Parser};
use stasis_config::{Settings, SettingsError};
use stasis_engine::error::chain;
use stasis_engine::error::classify::Classified;
use stasis_engine::error::io_kind::of_io;
use stasis_engine::error::io_kind::of_settings;
use stasis_engine::error::kind::{Kind, State};
use stasis_engine::suspend::{self, word};
use stasis_gpu::cuda::failure::ProcessFailure;
use stasis_gpu::cuda::{CudaDriver, CudaError, CudaState, Driver, OpenError};
use stasis_locate::LocateError;

use crate::answer::write;
use arguments::Arguments;

/// The program name that selects this command line.
pub const NAME: &str = "cuda-checkpoint";

/// Returns its command line, for documents made from it.
#[must_use]
pub fn command_line() -> clap::Command {
    Arguments::command()
}

/// The exit code of every failure, as in NVIDIA's program.
const FAILURE: u8 = 1;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Driver(#[from] OpenError),
    #[error("there is no process {0}")]
    NoProcess(i32),
    #[error("cannot read process {pid}")]
    Unreadable { pid: i32, source: io::Error },
    #[error("process {pid} ({name}) has no CUDA state: the driver says {error}")]
    NoCuda {
        pid: i32,
        name: String,
        error: CudaError,
    },
    #[error("{fault}; it is {now} now{advice}")]
    Call {
        fault: ProcessFailure,
        now: String,
        advice: &'static str,
    },
    #[error(
        "process {pid} ({name}) is {}: a toggle goes from running to checkpointed and back{advice}",
        word(*.state)
    )]
    NoToggle {
        pid: i32,
        name: String,
        state: CudaState,
        advice: &'static str,
    },
    #[error(transparent)]
    Locate(#[from] LocateError),
    #[error(transparent)]
    Container(#[from] suspend::Error),
    #[error("cannot prepare for signals, or write the answer")]
    Io(#[from] io::Error),
}

impl Error {
    /// The kind of the error, for scripts.
    fn kind(&self) -> Kind {
        match self {
            Self::Settings(error) => of_settings(error),
            Self::Driver(error) => error.kind(),
            Self::NoProcess(_) => Kind::ProcessEnded,
            Self::Unreadable { .. } => Kind::ContainerUnreadable,
            Self::NoCuda { error, .. } if *error != CudaError::NotInitialized => error.kind(),
            Self::NoCuda { .. } => Kind::NoCuda,
            Self::Call { fault, .. } => fault.kind(),
            Self::NoToggle { .. } => Kind::WrongState,
            Self::Locate(error) => error.kind(),
            Self::Container(error) => error.kind(),
            Self::Io(error) => of_io(error, Kind::Io),
        }
    }

    /// Returns the container's state, for scripts. Errors not listed here have changed nothing.
    fn state(&self) -> State {
        match self {
            Self::Call { .. } => State::Unknown,
            Self::Container(error) => error.state(),
            _ => State::Unharmed,
        }
    }
}

/// Carries a command line out and returns the exit code.
#[must_use]
pub fn main(args: impl Iterator<Item = OsString>) -> u8 {
    let arguments = match Arguments::try_parse_from(args) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help is not an error, and goes to standard output.
            let _ = error.print();
            return if error.use_stderr() { FAILURE } else { 0 };
        }
    };
    match run(&arguments) {
        Ok(answer) => match write(&answer) {
            Ok(()) => 0,
            Err(_) => FAILURE,
        },
        Err(error) => {
            let (text, kind) = (chain(&error), error.kind());
            let _ = match arguments.target.container {
                Some(_) => writeln!(
                    io::stderr(),
                    "{NAME}: {text} [{kind}] state={}",
                    error.state()
                ),
                None => writeln!(io::stderr(), "{NAME}: {text} [{kind}]"),
            };
            FAILURE
        }
    }
}

/// Returns the answer. Operations that change a state print nothing, so that callers can use the
/// output as a value.
fn run(arguments: &Arguments) -> Result<String, Error> {
    let settings = Settings::load(None)?;
    match arguments.target.pid {
        Some(pid) => {
            let driver = CudaDriver::open(settings.driver.libcuda.as_deref())?;
            let driver = Arc::new(driver) as Arc<dyn Driver>;
            process::run(&driver, pid, arguments, &settings.paths.state_dir)
        }
        None => job::run(settings, arguments),
    }
}

#[cfg(test)]
mod tests;
