//! The CUDA driver's view of a process, and the calls that change it.
//!
//! The driver is the only one who knows whether a process uses CUDA and whether its GPU state is
//! on the GPU or in host memory. [`Driver`] is that knowledge as a trait; [`CudaDriver`] asks
//! the real library. All calls name a process by its pid as *we* see it, and act on that process
//! from outside; none needs `cuInit` in the caller (measured on driver 580.159).

mod ffi;

use std::fmt;
use std::time::Duration;

pub(crate) use ffi::end_process;
pub use ffi::{CudaDriver, OpenError};

/// Where the GPU state of a process is, as the driver says (`CUprocessState`).
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
    /// A state that this version does not know (newer drivers have more).
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

/// A `CUresult` other than success, limited to those that the checkpoint calls are documented or
/// were seen to return; any other is carried by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{} ({})", self.name(), self.code())]
pub enum CudaError {
    /// The call did not come back in this time (`watchdog.rs`); it may still take effect.
    NoAnswer(Duration),
    /// 1: for a restore, the GPU map does not cover every GPU of the process.
    InvalidValue,
    /// 2: no room on the GPU. After a *restore* with this answer the process is lost for good.
    OutOfMemory,
    /// 3: the process has no CUDA state. The only answer that means "not a CUDA process".
    NotInitialized,
    /// 201.
    InvalidContext,
    /// 304: no right to act on the process, or an earlier restore of it failed.
    OperatingSystem,
    /// 401: the call does not fit the state of the process.
    IllegalState,
    /// 600: the lock's timeout has passed; the process runs on.
    NotReady,
    /// 800: no persistence mode, or no right.
    NotPermitted,
    /// 801: the process uses what this driver cannot save or bring back (managed memory, ...).
    NotSupported,
    /// Any other code.
    Unknown(i32),
}

impl CudaError {
    /// The error of a non-zero `CUresult`.
    #[must_use]
    pub fn from_code(code: i32) -> Self {
        match code {
            1 => Self::InvalidValue,
            2 => Self::OutOfMemory,
            3 => Self::NotInitialized,
            201 => Self::InvalidContext,
            304 => Self::OperatingSystem,
            401 => Self::IllegalState,
            600 => Self::NotReady,
            800 => Self::NotPermitted,
            801 => Self::NotSupported,
            other => Self::Unknown(other),
        }
    }

    /// The driver's number for it; -1, which is none of the driver's, if it gave no answer.
    #[must_use]
    pub fn code(self) -> i32 {
        match self {
            Self::NoAnswer(_) => -1,
            Self::InvalidValue => 1,
            Self::OutOfMemory => 2,
            Self::NotInitialized => 3,
            Self::InvalidContext => 201,
            Self::OperatingSystem => 304,
            Self::IllegalState => 401,
            Self::NotReady => 600,
            Self::NotPermitted => 800,
            Self::NotSupported => 801,
            Self::Unknown(code) => code,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::NoAnswer(_) => "no answer",
            Self::InvalidValue => "CUDA_ERROR_INVALID_VALUE",
            Self::OutOfMemory => "CUDA_ERROR_OUT_OF_MEMORY",
            Self::NotInitialized => "CUDA_ERROR_NOT_INITIALIZED",
            Self::InvalidContext => "CUDA_ERROR_INVALID_CONTEXT",
            Self::OperatingSystem => "CUDA_ERROR_OPERATING_SYSTEM",
            Self::IllegalState => "CUDA_ERROR_ILLEGAL_STATE",
            Self::NotReady => "CUDA_ERROR_NOT_READY",
            Self::NotPermitted => "CUDA_ERROR_NOT_PERMITTED",
            Self::NotSupported => "CUDA_ERROR_NOT_SUPPORTED",
            Self::Unknown(_) => "a CUDA error that this version does not know",
        }
    }
}

/// The identity of a GPU (`CUuuid`), written as NVML and nvidia-smi write it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GpuUuid([u8; 16]);

impl GpuUuid {
    /// The UUID of these bytes, in the order in which the driver keeps them.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes as the driver keeps them.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for GpuUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GPU-")?;
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for GpuUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is not a GPU UUID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a GPU UUID (GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx)")]
pub struct InvalidGpuUuid(String);

impl std::str::FromStr for GpuUuid {
    type Err = InvalidGpuUuid;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidGpuUuid(text.chars().take(64).collect());
        let groups: Vec<&str> = text
            .strip_prefix("GPU-")
            .ok_or_else(invalid)?
            .split('-')
            .collect();
        let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
        if lengths != [8, 4, 4, 4, 12] {
            return Err(invalid());
        }
        let digits = groups.concat();
        let mut bytes = [0; 16];
        for (index, byte) in bytes.iter_mut().enumerate() {
            let pair = digits.get(2 * index..2 * index + 2).ok_or_else(invalid)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| invalid())?;
        }
        Ok(Self(bytes))
    }
}

impl serde::Serialize for GpuUuid {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for GpuUuid {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Which GPU takes the place of which at restore. Empty: every process returns to the GPUs it
/// had. Otherwise the driver wants every GPU named that it recorded for the process at `cuInit`,
/// moved or not, used or not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GpuMap {
    pairs: Vec<(GpuUuid, GpuUuid)>,
    others: Vec<(GpuUuid, GpuUuid)>,
}

impl GpuMap {
    /// Every process returns to the GPUs it had.
    #[must_use]
    pub fn identity() -> Self {
        Self::default()
    }

    /// A map of (old, new) pairs.
    #[must_use]
    pub fn new(pairs: Vec<(GpuUuid, GpuUuid)>) -> Self {
        let others = Vec::new();
        Self { pairs, others }
    }

    /// The same map, and pairs for GPUs of which nobody knows whether the driver recorded them:
    /// they are added when it finds the map incomplete, which changes nothing for the process
    /// (measured on driver 580.159).
    #[must_use]
    pub fn with_others(self, others: Vec<(GpuUuid, GpuUuid)>) -> Self {
        Self { others, ..self }
    }

    /// What to give to the driver if it finds the pairs incomplete; `None` if nothing is left.
    #[must_use]
    pub fn widened(&self) -> Option<Self> {
        let all = self.pairs.iter().chain(&self.others).copied().collect();
        (!self.pairs.is_empty() && !self.others.is_empty()).then(|| Self::new(all))
    }

    /// The (old, new) pairs.
    #[must_use]
    pub fn pairs(&self) -> &[(GpuUuid, GpuUuid)] {
        &self.pairs
    }
}

/// What the CUDA driver can do to another process. Calls for different processes may be made at
/// the same time; the driver overlaps them (two GPUs scale fully, eight processes of one GPU
/// take a third of the serial time on an H200).
pub trait Driver: Send + Sync {
    /// The state of a process. Blocks while the driver is in the middle of a checkpoint or
    /// restore of it, even if the caller of that operation is dead.
    ///
    /// # Errors
    /// [`CudaError::NotInitialized`] if the process does not use CUDA.
    fn state(&self, pid: i32) -> Result<CudaState, CudaError>;

    /// The thread of the process that does the driver's work at restore.
    ///
    /// # Errors
    /// As [`Driver::state`].
    fn restore_thread(&self, pid: i32) -> Result<i32, CudaError>;

    /// RUNNING to LOCKED: waits for submitted work, then holds further CUDA calls of the process.
    /// Hangs beyond `timeout` if the process is stopped or frozen.
    ///
    /// # Errors
    /// [`CudaError::NotReady`] when `timeout` has passed; the process then runs on.
    fn lock(&self, pid: i32, timeout: Duration) -> Result<(), CudaError>;

    /// LOCKED to CHECKPOINTED: moves the GPU state into host memory of the process and frees the
    /// GPU. Cannot be interrupted.
    ///
    /// # Errors
    /// [`CudaError::NotSupported`] for what the driver cannot save; the process stays LOCKED.
    fn checkpoint(&self, pid: i32) -> Result<(), CudaError>;

    /// CHECKPOINTED to LOCKED: puts the GPU state back. Cannot be interrupted.
    ///
    /// # Errors
    /// [`CudaError::OutOfMemory`] when the GPU has no room: final, no later restore succeeds.
    /// [`CudaError::InvalidValue`] when the map is incomplete: the process stays CHECKPOINTED.
    fn restore(&self, pid: i32, map: &GpuMap) -> Result<(), CudaError>;

    /// LOCKED to RUNNING.
    ///
    /// # Errors
    /// [`CudaError::IllegalState`] in any other state.
    fn unlock(&self, pid: i32) -> Result<(), CudaError>;
}

#[cfg(test)]
mod tests;
