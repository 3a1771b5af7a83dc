//! The command line: the options of NVIDIA's program up to driver 580, and our own.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, ValueEnum};
use stasis_engine::suspend::Action;
use stasis_gpu::cuda::{GpuMap, GpuUuid, InvalidGpuUuid};

/// Move the CUDA state of running processes between GPU and host memory.
///
/// Replaces NVIDIA's program of that name and takes its options. Move containers as a whole
/// (--container, or `stasis suspend` and `stasis resume`): while a process is moved alone, a
/// checkpoint of its container is refused (unknown-gpus).
///
/// Exit code 0: done; 1: failed, or a wrong command line.
#[derive(Debug, Parser)]
#[command(
    name = super::NAME,
    infer_long_args = true,
    args_override_self = true,
    override_usage = "cuda-checkpoint \
                      (--get-state | --action ACTION | --toggle | --get-restore-tid) \
                      (--pid PID | --container ID) [OPTIONS]"
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) operation: OperationArguments,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
    /// Give up locking after this time; 0: never
    #[arg(short, long, value_name = "MS")]
    pub(crate) timeout: Option<u32>,
    /// Restore onto other GPUs: name every GPU of the process
    #[arg(short, long, value_name = "OLD=NEW,...")]
    pub(crate) device_map: Option<DeviceMap>,
    /// The root of its low-level runtime
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "pid")]
    pub(crate) root: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct OperationArguments {
    /// Print the state: running, locked, checkpointed or failed
    #[arg(long)]
    pub(crate) get_state: bool,
    /// One step: lock (wait for submitted work, hold further calls), checkpoint (to host memory),
    /// restore (to the GPU), unlock
    #[arg(long, value_name = "ACTION")]
    pub(crate) action: Option<ActionArgument>,
    /// Lock and checkpoint if running, restore and unlock if checkpointed
    #[arg(long)]
    pub(crate) toggle: bool,
    /// Print the thread that does the driver's work at a restore
    #[arg(long)]
    pub(crate) get_restore_tid: bool,
}

/// The driver's steps, as they are named on the command line.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ActionArgument {
    /// Waits for submitted work, and holds further calls.
    Lock,
    /// To host memory.
    Checkpoint,
    /// To the GPUs.
    Restore,
    /// Lets the process continue.
    Unlock,
}

impl From<ActionArgument> for Action {
    fn from(argument: ActionArgument) -> Self {
        match argument {
            ActionArgument::Lock => Self::Lock,
            ActionArgument::Checkpoint => Self::Checkpoint,
            ActionArgument::Restore => Self::Restore,
            ActionArgument::Unlock => Self::Unlock,
        }
    }
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct TargetArguments {
    /// One process
    #[arg(short, long, value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) pid: Option<i32>,
    /// All CUDA processes of a container, together
    #[arg(long, value_name = "ID")]
    pub(crate) container: Option<String>,
}

/// The requested operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    State,
    RestoreThread,
    Step(Action),
    Toggle,
}

impl Arguments {
    pub(crate) fn operation(&self) -> Operation {
        let asked = &self.operation;
        match asked.action {
            Some(action) => Operation::Step(action.into()),
            None if asked.toggle => Operation::Toggle,
            None if asked.get_restore_tid => Operation::RestoreThread,
            None => Operation::State,
        }
    }

    /// Returns the timeout of a lock. NVIDIA's program has none by default.
    pub(crate) fn lock_timeout(&self) -> Option<Duration> {
        let millis = self.timeout.filter(|millis| *millis > 0)?;
        Some(Duration::from_millis(millis.into()))
    }

    pub(crate) fn map(&self) -> GpuMap {
        self.device_map
            .as_ref()
            .map_or_else(GpuMap::identity, |map| map.0.clone())
    }
}

/// `OLD=NEW,...`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeviceMap(pub(crate) GpuMap);

/// A text that is not a device map.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidMap {
    #[error("{0:?} is not OLD=NEW")]
    Pair(String),
    #[error(transparent)]
    Uuid(#[from] InvalidGpuUuid),
    #[error("GPU {0} is named twice")]
    Twice(GpuUuid),
}

impl FromStr for DeviceMap {
    type Err = InvalidMap;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut pairs: Vec<(GpuUuid, GpuUuid)> = Vec::new();
        for pair in text.split(',') {
            let (old, new) = pair
                .split_once('=')
                .ok_or_else(|| InvalidMap::Pair(pair.to_owned()))?;
            let (old, new): (GpuUuid, GpuUuid) = (uuid(old)?, uuid(new)?);
            if let Some((known, _)) = pairs.iter().find(|(known, _)| *known == old) {
                return Err(InvalidMap::Twice(*known));
            }
            pairs.push((old, new));
        }
        Ok(Self(GpuMap::new(pairs)))
    }
}

/// Parses a GPU's UUID as nvidia-smi prints it, or without the prefix "GPU-".
fn uuid(text: &str) -> Result<GpuUuid, InvalidGpuUuid> {
    let text = text.trim();
    text.parse().or_else(|error| {
        let whole = format!("GPU-{text}");
        whole.parse().map_err(|_| error)
    })
}
