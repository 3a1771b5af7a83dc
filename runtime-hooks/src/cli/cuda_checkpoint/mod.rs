//! NVIDIA's `cuda-checkpoint` for operators and CRIU's CUDA plugin: the same options, output and
//! exit codes, with error texts that report the state after a failure.
//!
//! Our addition is `--container`, which acts on all CUDA processes of one together.

pub(in crate::cli) mod arguments;
mod hooks;
pub(in crate::cli) mod job;
mod memory;
mod process;
mod stopped;
mod suspend;

use std::ffi::OsString;
use std::io::{self, Write};
use std::sync::Arc;

use clap::{CommandFactory, Parser};
use stasis_config::{Settings, SettingsError};

use crate::cli::answer::write;
use crate::cli::command_error::of_settings;
use crate::cli::gone;
use crate::cli::locate::LocateError;
use crate::container::host_memory::NoHostMemory;
use crate::container::inherited_devices::InheritedDevicesError;
use crate::cuda::failure::ProcessFailure;
use crate::cuda::{CudaDriver, CudaError, CudaState, Driver, OpenError};
use crate::error::io_kind::of_io;
use crate::error::kind::{Kind, State};
use crate::error::{Refusal, chain};
use crate::low_level::hook::HookError;
use crate::operation::OperationError;
use crate::preflight::blocker::Blockers;
use arguments::Arguments;

/// The program name that selects this command line.
pub const NAME: &str = "cuda-checkpoint";

/// Its command line, for what is made of it.
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
    Unreadable {
        pid: i32,
        #[source]
        source: io::Error,
    },
    #[error("process {pid} ({name}) has no CUDA state: the driver says {error}")]
    NoCuda {
        pid: i32,
        name: String,
        error: CudaError,
    },
    #[error("process {pid} ({name}) {held}, and would not answer the driver; nothing was done")]
    Held {
        pid: i32,
        name: String,
        held: stopped::Held,
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
    #[error("{0}; all processes are as before, with their GPU")]
    Hook(HookError),
    #[error("{0}; nothing was done")]
    Untouched(ProcessFailure),
    #[error("{fault}; {}", outcome(.lost))]
    Group {
        fault: ProcessFailure,
        lost: Vec<ProcessFailure>,
    },
    #[error("it could not be checkpointed later; {}", outcome(.lost))]
    InheritedDevices {
        #[source]
        cause: InheritedDevicesError,
        lost: Vec<ProcessFailure>,
    },
    #[error("there is no room for its GPU contents; {}", outcome(.lost))]
    NoRoomInside {
        #[source]
        cause: Box<Error>,
        lost: Vec<ProcessFailure>,
    },
    #[error("it cannot be recorded that the operator has suspended it; {}", outcome(.lost))]
    NotRecorded {
        #[source]
        cause: OperationError,
        lost: Vec<ProcessFailure>,
    },
    #[error("a signal asked for it to end; {}", outcome(.lost))]
    Cancelled { lost: Vec<ProcessFailure> },
    #[error("cannot prepare for signals, or write the answer")]
    Io(#[from] io::Error),
}

impl Error {
    /// The processes that could not be brought back.
    fn lost(&self) -> &[ProcessFailure] {
        match self {
            Self::Group { lost, .. }
            | Self::InheritedDevices { lost, .. }
            | Self::NoRoomInside { lost, .. }
            | Self::NotRecorded { lost, .. }
            | Self::Cancelled { lost } => lost,
            _ => &[],
        }
    }

    /// The kind of the error, for scripts.
    pub(in crate::cli) fn kind(&self) -> Kind {
        match self {
            Self::Settings(error) => of_settings(error),
            Self::Driver(error) => error.kind(),
            Self::NoProcess(_) => Kind::ProcessEnded,
            Self::Unreadable { .. } => Kind::ContainerUnreadable,
            Self::NoCuda { error, .. } if *error != CudaError::NotInitialized => error.kind(),
            Self::NoCuda { .. } | Self::NoMembers(_) => Kind::NoCuda,
            Self::Held { held, .. } => held.kind(),
            Self::Call { fault, .. } | Self::Untouched(fault) | Self::Group { fault, .. } => {
                fault.kind()
            }
            Self::NoToggle { .. } | Self::Mixed { .. } => Kind::WrongState,
            Self::Locate(error) => error.kind(),
            Self::Operation(error) | Self::NotRecorded { cause: error, .. } => error.kind(),
            Self::InheritedDevices { .. } => Kind::InheritedDevices,
            Self::NoRoomInside { cause, .. } => cause.kind(),
            Self::Blocked(_) => Kind::Blocked,
            Self::NoHostMemory(error) => error.kind(),
            Self::Refused(refusal) => refusal.kind(),
            Self::Cancelled { .. } => Kind::Cancelled,
            Self::Hook(_) => Kind::HookFailed,
            Self::Io(error) => of_io(error, Kind::Io),
        }
    }

    /// How a container is now, for scripts. What is not listed here has changed nothing.
    pub(in crate::cli) fn state(&self) -> State {
        match self {
            Self::Call { .. } => State::Unknown,
            error if error.lost().is_empty() => State::Unharmed,
            // Its keeper goes on trying.
            error if error.lost().iter().all(ProcessFailure::may_pass) => State::Waiting,
            _ => State::Lost,
        }
    }
}

fn outcome(lost: &[ProcessFailure]) -> String {
    if lost.is_empty() {
        return "all processes are as before, with their GPU".to_owned();
    }
    let texts: Vec<String> = lost.iter().map(ToString::to_string).collect();
    let later = match lost.iter().any(ProcessFailure::lacks_room) {
        true => "; a process of stasis gives them their GPU back as soon as there is room",
        false => "",
    };
    format!(
        "these could not be brought back: {}{later}",
        texts.join("; ")
    )
}

/// Carries a command line out and returns the exit code.
#[must_use]
pub fn main(args: impl Iterator<Item = OsString>) -> u8 {
    let words: Vec<OsString> = args.collect();
    let arguments = match Arguments::try_parse_from(&words) {
        Ok(arguments) => arguments,
        Err(error) => {
            let error = gone::with_successor(error, words.into_iter());
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

/// The answer. Operations that change a state print nothing, so that callers can use the output as
/// a value.
fn run(arguments: &Arguments) -> Result<String, Error> {
    let settings = Settings::load(None)?;
    match arguments.target.pid {
        Some(pid) => {
            let driver = CudaDriver::open(settings.driver.libcuda.as_deref())?;
            process::run(&(Arc::new(driver) as Arc<dyn Driver>), pid, arguments)
        }
        None => job::run(settings, arguments),
    }
}

/// A state as NVIDIA's program prints it.
fn word(state: CudaState) -> String {
    match state {
        CudaState::Unknown(raw) => format!("unknown ({raw})"),
        known => known.to_string().to_lowercase(),
    }
}

#[cfg(test)]
mod tests;
