//! Where GPU contents go while CRIU dumps their processes.

use stasis_config::GpuCheckpointPath;

use crate::bulk_memory::plugin::Plugins;
use crate::checkpoint::captured::Captured;
use crate::context::Context;

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
    pub(super) fn wanted(context: &Context, plugins: &Plugins) -> Self {
        let settings = &context.settings;
        let by_driver = settings.gpu_checkpoint.path == GpuCheckpointPath::Driver;
        // The store of a dump has one writer, which is the plugin where it moves heaps.
        let by_plugin = plugins.memory.is_err() || settings.bulk_memory.moves_heaps();
        match by_driver || by_plugin {
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
