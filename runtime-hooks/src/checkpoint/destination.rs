//! Where GPU contents go while CRIU dumps their processes.

use stasis_config::{GpuCheckpointPath, Settings};

use crate::bulk_memory::plugin::DumpUse;
use crate::checkpoint::captured::Captured;

/// Where GPU contents go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Destination {
    /// Into files of ours, from which they are stored. Those of processes that hold less than so
    /// many bytes go into memory of these all the same, and CRIU dumps them.
    Files { minimum: u64 },
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
            false => Self::Files {
                minimum: minimum(settings),
            },
        }
    }

    /// From how many bytes of a process on, threads of ours copy them.
    pub(super) fn minimum(self, settings: &Settings) -> u64 {
        match self {
            Self::Files { minimum } => minimum,
            Self::Memory => minimum(settings),
        }
    }

    /// For a container whose limits leave no room for that: nothing goes into its memory, though
    /// for little it takes longer.
    pub(super) fn in_files_only(self) -> Self {
        match self {
            Self::Files { .. } => Self::Files { minimum: 1 },
            Self::Memory => Self::Memory,
        }
    }

    /// How much becomes memory of the container.
    pub(super) fn bytes_in_container(self, captured: &Captured) -> u64 {
        let all = captured.to_host_bytes;
        match self {
            Self::Memory => all,
            Self::Files { minimum } => all.saturating_sub(captured.in_files_bytes(minimum)),
        }
    }
}

fn minimum(settings: &Settings) -> u64 {
    settings.gpu_checkpoint.minimum_mib << 20
}
