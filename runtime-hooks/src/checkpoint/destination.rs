//! Where GPU contents go while CRIU dumps their processes.

mod by_criu;

use stasis_config::{GpuCheckpointPath, Settings};
use stasis_linux::ProcessRef;

use crate::bulk_memory::plugin::PluginUnavailable;
use crate::checkpoint::captured::Captured;
use crate::container::host_memory::admit_limits;
use crate::container::memory_limit::MemoryCgroup;
use crate::gpu_path::why_not_passed;
pub(crate) use by_criu::{ByCriu, Cause};

/// Where GPU contents go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Destination {
    /// Into files of ours, from which they are stored. Those of processes that hold less than so
    /// many bytes go into memory of these all the same, and CRIU dumps them.
    Files { minimum: u64 },
    /// Into memory of their processes, where CRIU dumps them, for this reason.
    Memory(Cause),
}

impl Destination {
    /// Where a checkpoint has them go if it can.
    pub(crate) fn wanted(settings: &Settings, plugin: Result<(), &PluginUnavailable>) -> Self {
        match (settings.gpu_checkpoint.path, plugin) {
            (GpuCheckpointPath::Driver, _) => Self::Memory(Cause::Path),
            (GpuCheckpointPath::Auto, Err(why)) => Self::Memory(Cause::NoHoles(why.to_string())),
            (GpuCheckpointPath::Auto, Ok(())) => Self::Files {
                minimum: minimum(settings),
            },
        }
    }

    /// The same for processes with these limits. If they leave no room for what goes into memory,
    /// nothing does, though for little a file takes longer.
    pub(crate) fn fitting(self, limits: &MemoryCgroup, captured: &Captured) -> Self {
        let bytes = self.bytes_in_container(captured);
        match (&self, admit_limits(limits, bytes)) {
            (Self::Files { .. }, Err(_)) => Self::Files { minimum: 1 },
            _ => self,
        }
    }

    /// From how many bytes of a process on, threads of ours copy them.
    pub(super) fn minimum(&self, settings: &Settings) -> u64 {
        match self {
            Self::Files { minimum } => *minimum,
            Self::Memory(_) => minimum(settings),
        }
    }

    /// How much becomes memory of the container.
    pub(crate) fn bytes_in_container(&self, captured: &Captured) -> u64 {
        let all = captured.to_host_bytes;
        match self {
            Self::Memory(_) => all,
            Self::Files { minimum } => all.saturating_sub(captured.in_files_bytes(*minimum)),
        }
    }

    /// What CRIU dumps of it, if all goes well, and why.
    pub(crate) fn by_criu(&self, captured: &Captured) -> Option<ByCriu> {
        let cause = match self {
            Self::Memory(cause) => cause.clone(),
            Self::Files { minimum } => Cause::Little { minimum: *minimum },
        };
        let bytes = self.bytes_in_container(captured);
        (bytes > 0).then_some(ByCriu { bytes, cause })
    }

    /// The same before a checkpoint has made files: some process may be known to get none, and then
    /// none of the others has one.
    pub(crate) fn foretold(self, settings: &Settings, captured: &Captured) -> Self {
        let Self::Files { minimum } = self else {
            return self;
        };
        let mut held = captured.held(minimum).into_iter();
        let why = held.find_map(|(process, _)| {
            let why = why_not_passed(settings, &process)?;
            Some(no_file(&process, &why))
        });
        why.map_or(self, Self::Memory)
    }
}

/// That a process gets no file.
pub(super) fn no_file(process: &ProcessRef, why: &str) -> Cause {
    Cause::NoFile(format!("{process} has no file for it: {why}"))
}

fn minimum(settings: &Settings) -> u64 {
    settings.gpu_checkpoint.minimum_mib << 20
}
