//! The CUDA driver's view of a process, and the calls that change it.
//!
//! Only the driver knows whether a process uses CUDA and whether its GPU state is on the GPU or in
//! host memory. [`Driver`] is the trait, [`CudaDriver`] calls libcuda. All calls act on a process
//! from outside; none needs `cuInit` in the caller (measured on driver 580.159). libcuda takes a
//! bare pid. [`Driver`] takes a [`ProcessRef`], so that no call acts on another process that has
//! been given the pid of an ended one.

pub mod device_node;
pub mod driver_version;
pub mod failure;
mod ffi;
mod gpu;
pub mod gpu_use;
pub mod job;
pub mod lock;
mod locked_time;
pub mod nvml;
pub mod process_set;
pub mod stopped;
mod threads;
pub mod watchdog;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use stasis_linux::ProcessRef;

use crate::cuda::failure::NoRoom;
use crate::cuda::gpu_use::GpuBytes;
use crate::cuda::process_set::arrivals::Arrivals;
pub use ffi::{CudaDriver, OpenError};
pub(crate) use ffi::{end_process, open_library};
pub use gpu::{GpuMap, GpuUuid, InvalidGpuUuid};

/// Where the GPU state of a process is (`CUprocessState`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CudaState {
    /// On the GPU; the process may call CUDA.
    Running,
    /// On the GPU; CUDA calls of the process block.
    Locked,
    /// In host memory of the process; CUDA calls block, the GPU is free.
    Checkpointed,
    /// Lost by a failed driver operation; the driver offers no way back.
    Failed,
    /// A state that this version does not know (a newer driver).
    Unknown(i32),
}

impl From<i32> for CudaState {
    fn from(raw: i32) -> Self {
        match raw {
            0 => Self::Running,
            1 => Self::Locked,
            2 => Self::Checkpointed,
            3 => Self::Failed,
            other => Self::Unknown(other),
        }
    }
}

impl fmt::Display for CudaState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running => f.write_str("RUNNING"),
            Self::Locked => f.write_str("LOCKED"),
            Self::Checkpointed => f.write_str("CHECKPOINTED"),
            Self::Failed => f.write_str("FAILED"),
            Self::Unknown(raw) => write!(f, "unknown state {raw}"),
        }
    }
}

/// A `CUresult` other than success. The checkpoint calls are documented or were seen to return the
/// named ones; [`CudaError::Unknown`] carries the number of any other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{} ({})", self.name(), self.code())]
pub enum CudaError {
    /// The call did not return in this time (`cuda/watchdog.rs`); it may still take effect.
    NoAnswer(Duration),
    /// The call was not made: starting its thread failed with this errno.
    NoThread(i32),
    /// The call was not made: the process has ended.
    Ended,
    /// The call was made, and the injected code could not be removed from the process.
    NotPutBack,
    /// The call was not made: GPU contents of the process are in the store of a checkpoint, and the
    /// driver would end the process if it looked for them (measured on driver 580.159).
    ContentsAway,
    /// The same, and no process or store has the contents any more.
    ContentsLost,
    /// The call was not made: GPU memory that the process shares with others was given up for their
    /// checkpoint, and is not shared again.
    SharedMemoryAway,
    /// The same, and a process that shared it has ended.
    SharedMemoryLost,
    /// 1: for a restore, the GPU map does not cover every GPU of the process.
    InvalidValue,
    /// 2: the GPU has too little free memory. If a *restore* returns this, the process is lost.
    OutOfMemory,
    /// 3: the process has no CUDA state. Only this error means "not a CUDA process".
    NotInitialized,
    /// 201.
    InvalidContext,
    /// 304: no permission to act on the process, or an earlier restore of it failed.
    OperatingSystem,
    /// 401: the call does not fit the state of the process.
    IllegalState,
    /// 600: the lock's timeout has passed; the process runs on.
    NotReady,
    /// 800: persistence mode is off, or permission is missing.
    NotPermitted,
    /// 801: the process uses memory that this driver cannot save or restore (managed, ...).
    NotSupported,
    /// Any other code.
    Unknown(i32),
}

/// The driver's errors that are named, with the number and name of `CUresult`.
const NAMED: [(CudaError, i32, &str); 9] = [
    (CudaError::InvalidValue, 1, "CUDA_ERROR_INVALID_VALUE"),
    (CudaError::OutOfMemory, 2, "CUDA_ERROR_OUT_OF_MEMORY"),
    (CudaError::NotInitialized, 3, "CUDA_ERROR_NOT_INITIALIZED"),
    (CudaError::InvalidContext, 201, "CUDA_ERROR_INVALID_CONTEXT"),
    (
        CudaError::OperatingSystem,
        304,
        "CUDA_ERROR_OPERATING_SYSTEM",
    ),
    (CudaError::IllegalState, 401, "CUDA_ERROR_ILLEGAL_STATE"),
    (CudaError::NotReady, 600, "CUDA_ERROR_NOT_READY"),
    (CudaError::NotPermitted, 800, "CUDA_ERROR_NOT_PERMITTED"),
    (CudaError::NotSupported, 801, "CUDA_ERROR_NOT_SUPPORTED"),
];

impl CudaError {
    /// The error of a non-zero `CUresult`.
    pub(crate) fn from_code(code: i32) -> Self {
        let named = NAMED.iter().find(|(_, number, _)| *number == code);
        named.map_or(Self::Unknown(code), |(error, ..)| *error)
    }

    /// The `CUresult` of the driver; -1, which the driver does not use, if there is none.
    #[must_use]
    pub fn code(self) -> i32 {
        match self {
            Self::Unknown(code) => code,
            _ => self.named().map_or(-1, |(code, _)| code),
        }
    }

    fn named(self) -> Option<(i32, &'static str)> {
        let named = NAMED.iter().find(|(error, ..)| *error == self);
        named.map(|(_, code, name)| (*code, *name))
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::NoAnswer(_) => "no answer",
            Self::NoThread(_) => "no thread for the call",
            Self::Ended => "the process has ended",
            Self::ContentsAway => "its GPU contents, which a checkpoint has stored, are not mapped",
            Self::ContentsLost => "its GPU contents are lost",
            Self::SharedMemoryAway => "GPU memory that it shares with others is not there again",
            Self::SharedMemoryLost => {
                "a process has ended whose GPU memory others of the container had imported, which \
                 is lost with it"
            }
            Self::NotPutBack => "the process still has code of stasis, which copies for it",
            _ => {
                let unknown = "a CUDA error that this version does not know";
                self.named().map_or(unknown, |(_, name)| name)
            }
        }
    }
}

/// Figures of how GPU contents were copied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Copying {
    /// Bytes that were shared out to many threads.
    pub shared_out: u64,
    /// Why the driver copied alone.
    pub notes: Vec<String>,
}

/// The CUDA driver's calls that act on another process. Calls for different processes may be made
/// at the same time; the driver overlaps them (two GPUs scale fully, eight processes of one GPU
/// take a third of the serial time on an H200).
pub trait Driver: Send + Sync {
    /// The state of a process. Blocks while the driver checkpoints or restores the process, even
    /// if the caller of that operation is dead.
    ///
    /// # Errors
    /// [`CudaError::NotInitialized`] if the process does not use CUDA.
    fn state(&self, process: &ProcessRef) -> Result<CudaState, CudaError>;

    /// The thread of the process that does the driver's work at restore.
    fn restore_thread(&self, process: &ProcessRef) -> Result<i32, CudaError>;

    /// RUNNING to LOCKED: waits for submitted work, then holds further CUDA calls of the process.
    /// Hangs beyond `timeout` if the process is stopped or frozen.
    ///
    /// # Errors
    /// [`CudaError::NotReady`] when `timeout` has passed; the process then runs on.
    fn lock(&self, process: &ProcessRef, timeout: Duration) -> Result<(), CudaError>;

    /// LOCKED to CHECKPOINTED: moves the GPU state into host memory of the process and frees the
    /// GPU. Cannot be interrupted.
    ///
    /// # Errors
    /// [`CudaError::NotSupported`] if the driver cannot save its memory; the process stays LOCKED.
    fn checkpoint(&self, process: &ProcessRef) -> Result<(), CudaError>;

    /// CHECKPOINTED to LOCKED: puts the GPU state back. Cannot be interrupted.
    ///
    /// # Errors
    /// [`CudaError::OutOfMemory`] if the GPU has too little memory: no later restore succeeds.
    /// [`CudaError::InvalidValue`] when the map is incomplete: the process stays CHECKPOINTED.
    fn restore(&self, process: &ProcessRef, map: &GpuMap) -> Result<(), CudaError>;

    /// Whether a process shares GPU memory that was given up for the time of a checkpoint: it is
    /// unlocked with all processes that share it, or not at all. No call of the driver's.
    fn shares_memory(&self, process: &ProcessRef) -> bool {
        let _ = process;
        false
    }

    /// Has this process and all that share memory with each other share it again, once all of them
    /// are LOCKED.
    ///
    /// # Errors
    /// [`CudaError::SharedMemoryAway`], [`CudaError::SharedMemoryLost`]: those that still share
    /// memory by [`Self::shares_memory`] are not unlocked.
    fn share_again(&self, process: &ProcessRef) -> Result<(), CudaError> {
        let _ = process;
        Ok(())
    }

    /// LOCKED to RUNNING.
    ///
    /// # Errors
    /// [`CudaError::IllegalState`] in any other state.
    fn unlock(&self, process: &ProcessRef) -> Result<(), CudaError>;

    /// Announces the processes that are checkpointed or restored next, at the same time, and how
    /// many bytes each has on GPUs, or had. No call of the driver's.
    fn expect(&self, held: &[(ProcessRef, u64)]) {
        let _ = held;
    }

    /// Announces that contents of the processes that are restored next are still being loaded. No
    /// call of the driver's.
    fn expect_arrivals(&self, arrivals: &Arc<Arrivals>) {
        let _ = arrivals;
    }

    /// Returns how contents were copied since the last call of this. No call of the driver's.
    fn copying(&self) -> Copying {
        Copying::default()
    }

    /// Returns how many bytes threads of ours have copied in the driver calls that are under way,
    /// by their own count. No call of the driver's.
    fn copied(&self) -> u64 {
        0
    }

    /// Reserves room on GPUs for processes that are to be restored next. No call of the driver's:
    /// without a ledger it always succeeds.
    ///
    /// # Errors
    /// [`NoRoom`]: these processes must not be restored.
    fn reserve(&self, needed: &GpuBytes) -> Result<(), NoRoom> {
        let _ = needed;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
