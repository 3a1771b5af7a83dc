//! Settings of the driver's checkpoint and restore.

use serde::{Deserialize, Serialize};

/// `[gpu_checkpoint]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GpuCheckpoint {
    /// The copier of GPU contents.
    pub path: GpuCheckpointPath,
    /// Processes with less on GPUs are left to the driver, MiB.
    pub minimum_mib: u64,
}

/// The copier of GPU contents between the driver's buffers and host memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GpuCheckpointPath {
    /// Our threads, beside the driver's, unless this build of the driver has failed the self-test
    /// on this node.
    #[default]
    Auto,
    /// The driver alone.
    Driver,
}

impl Default for GpuCheckpoint {
    fn default() -> Self {
        Self {
            path: GpuCheckpointPath::Auto,
            minimum_mib: 256,
        }
    }
}
