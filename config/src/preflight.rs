//! What keeps a container from being checkpointed, by name, and which of it an administrator allows.

use std::fmt;

use serde::{Deserialize, Serialize};

/// `[preflight]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Preflight {
    /// Blockers that are no reason to refuse a checkpoint.
    pub allow: Vec<BlockerKind>,
}

/// A reason not to begin a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BlockerKind {
    /// The driver lacks the checkpoint calls.
    DriverVersion,
    /// The driver has lost the GPU state of a process.
    FailedState,
    /// NCCL of several processes may share GPU memory between them.
    NcclP2p,
    /// A client of the Multi-Process Service.
    Mps,
    /// A process on a slice of a GPU.
    Mig,
    /// Managed (unified) memory.
    ManagedMemory,
    /// A process holds an NVIDIA device without using CUDA.
    NvidiaDevice,
    /// `/dev/gdrdrv` is in use.
    Gdrdrv,
    /// RDMA devices are in use.
    Rdma,
    /// `io_uring` rings are in use.
    IoUring,
}

impl BlockerKind {
    /// All kinds, those of the driver first.
    pub const ALL: [Self; 10] = [
        Self::DriverVersion,
        Self::FailedState,
        Self::NcclP2p,
        Self::Mps,
        Self::Mig,
        Self::ManagedMemory,
        Self::NvidiaDevice,
        Self::Gdrdrv,
        Self::Rdma,
        Self::IoUring,
    ];

    /// Its name in the settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DriverVersion => "driver-version",
            Self::FailedState => "failed-state",
            Self::NcclP2p => "nccl-p2p",
            Self::Mps => "mps",
            Self::Mig => "mig",
            Self::ManagedMemory => "managed-memory",
            Self::NvidiaDevice => "nvidia-device",
            Self::Gdrdrv => "gdrdrv",
            Self::Rdma => "rdma",
            Self::IoUring => "io-uring",
        }
    }

    /// Whether a checkpoint may be tried all the same. Not with a driver that lacks the calls.
    #[must_use]
    pub fn can_be_allowed(self) -> bool {
        self != Self::DriverVersion
    }
}

impl fmt::Display for BlockerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Preflight {
    /// Whether blockers of this kind are no reason to refuse.
    #[must_use]
    pub fn allows(&self, kind: BlockerKind) -> bool {
        self.allow.contains(&kind)
    }

    pub(crate) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        if self.allow.iter().all(|kind| kind.can_be_allowed()) {
            return Ok(());
        }
        Err((
            "preflight.allow",
            "must not have \"driver-version\": an older driver lacks the calls for a checkpoint",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_what_the_settings_take() {
        for kind in BlockerKind::ALL {
            let text = format!("allow = [\"{kind}\"]");
            let read: Preflight = toml::from_str(&text).unwrap();
            assert!(read.allows(kind), "{kind}");
            assert_eq!(read.allow.len(), 1);
        }
        assert!(toml::from_str::<Preflight>("allow = [\"nccl\"]").is_err());
    }
}
