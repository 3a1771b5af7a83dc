//! Where GPU contents go while CRIU dumps their processes.

use stasis_config::{GpuCheckpointPath, Settings};

use crate::bulk_memory::plugin::DumpUse;
use crate::checkpoint::captured::Captured;

/// Where GPU contents go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Destination {
    /// Into files of ours, from which they are stored. Those of processes that hold little go into
    /// memory of these all the same, and CRIU dumps them.
    Files,
    /// Into memory of their processes, where CRIU, or our plugin, takes them.
    Memory,
}

impl Destination {
    /// Where a checkpoint has them go if it can.
    pub(crate) fn wanted(settings: &Settings, plugin: &DumpUse) -> Self {
        let by_driver = settings.gpu_checkpoint.path == GpuCheckpointPath::Driver;
        let cannot = plugin.for_files().is_err();
        // The store of a dump has one writer, which is the plugin where it moves heaps.
        let by_plugin = settings.bulk_memory.moves_heaps() && plugin.for_memory().is_ok();
        match by_driver || cannot || by_plugin {
            true => Self::Memory,
            false => Self::Files,
        }
    }

    /// How much becomes memory of the container. Processes that hold less than `minimum` bytes get
    /// no file.
    pub(super) fn bytes_in_container(self, captured: &Captured, minimum: u64) -> u64 {
        let all = captured.to_host_bytes;
        match self {
            Self::Memory => all,
            Self::Files => all.saturating_sub(captured.in_files_bytes(minimum)),
        }
    }
}
