//! Where GPU contents are while CRIU dumps their processes, and where they go.

mod by_criu;

use stasis_config::{GpuCheckpointPath, Settings};
use stasis_gpu::gpu_path::driver::BESIDE;
use stasis_linux::ProcessRef;

use crate::bulk_memory::places::{self, Places};
use crate::bulk_memory::plugin::PluginUnavailable;
use crate::checkpoint::captured::Captured;
use crate::container::host_memory::admit_limits;
use crate::container::memory_limit::MemoryCgroup;
use crate::request::Resumes;
pub use by_criu::{ByCriu, Cause};

/// The route of GPU contents. In each but [`Self::ByCriu`] contents of processes that hold at least
/// `minimum` bytes go into files of ours, and CRIU finds a hole in their place; smaller contents
/// take longer by a file, so the driver and CRIU move them.
///
/// The recovery of a killed operation finds the files' store by the request in the operation's
/// directory, and a record there of contents that are away; [`Self::ByCriu`] has neither, and only
/// the image has to be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GpuContentsRoute {
    /// Threads of ours copy them to a file, from which they are stored in the image, or in the
    /// directory apart, while the driver is at work. On a tmpfs the file is the store. Contents
    /// that the operator has suspended are in files of ours already, which are no packs. The
    /// default route: the processes stand still until all is stored.
    ToImage {
        /// Bytes.
        minimum: u64,
    },
    /// Like `ToImage`, but into memory: the processes resume before a disk has their contents,
    /// which go to their place then. The memory is free only after that. Taken if the processes
    /// resume at once, the place is a disk, and memory has room. Recovery finds two requests.
    Staged {
        /// Bytes.
        minimum: u64,
    },
    /// The driver copies all into memory of the processes, where CRIU dumps it, for this reason.
    /// One thread each, and the container's limits must have room.
    ByCriu(Cause),
}

/// The facts that decide a route.
#[expect(missing_debug_implementations, reason = "a closure is among them")]
pub struct Facts<'f> {
    /// The settings of the operation.
    pub settings: &'f Settings,
    /// Why an image cannot have holes.
    pub plugin: Result<(), &'f PluginUnavailable>,
    /// The processes' limits.
    pub limits: &'f MemoryCgroup,
    /// The processes and their GPU memory.
    pub captured: &'f Captured,
    /// When the processes resume.
    pub resumes: Resumes,
    /// Why a process gets no file, if that is known.
    pub no_file: &'f dyn Fn(&ProcessRef) -> Option<String>,
}

impl GpuContentsRoute {
    /// Returns the route that is taken if all goes well: a check reports it, the pre-flight has
    /// room for it, and a checkpoint begins with it.
    pub fn decide(facts: &Facts<'_>) -> Self {
        let (settings, captured) = (facts.settings, facts.captured);
        if settings.gpu_checkpoint.path == GpuCheckpointPath::Driver {
            return Self::ByCriu(Cause::Path);
        }
        if let Err(why) = facts.plugin {
            return Self::ByCriu(Cause::NoHoles(why.to_string()));
        }
        let mut minimum = minimum(settings);
        let little = captured.to_host_bytes;
        let little = little.saturating_sub(captured.in_files_bytes(minimum));
        if admit_limits(facts.limits, little).is_err() {
            // No contents go into memory, though small contents take longer by a file.
            minimum = 1;
        }
        if captured.in_files_bytes(minimum) == 0 {
            return Self::ByCriu(Cause::Little { minimum });
        }
        for (process, _) in captured.held(minimum) {
            // Then none of the others has one.
            if let Some(why) = (facts.no_file)(&process) {
                return Self::without_file(&process, &why);
            }
        }
        // A process that the operator has suspended does not resume: no use in staging.
        let resumes = facts.resumes == Resumes::AtOnce && captured.in_file_bytes == 0;
        let apart = Places::of(settings).apart;
        match resumes && !apart.as_deref().is_some_and(places::in_memory) {
            true => Self::Staged { minimum },
            false => Self::ToImage { minimum },
        }
    }

    /// Returns the route of all once one process turns out to get no file.
    pub(super) fn without_file(process: &ProcessRef, why: &str) -> Self {
        let why = format!("{process} has no file for it: {why}");
        Self::ByCriu(Cause::NoFile(why))
    }

    /// From how many bytes on a process's contents go into a file; `None`: never.
    pub(crate) fn in_files(&self) -> Option<u64> {
        match self {
            Self::ToImage { minimum } | Self::Staged { minimum } => Some(*minimum),
            Self::ByCriu(_) => None,
        }
    }

    /// Returns the bytes that go into files, or are there already.
    pub(super) fn bytes_in_files(&self, captured: &Captured) -> u64 {
        let minimum = self.in_files();
        minimum.map_or(0, |minimum| captured.in_files_bytes(minimum))
    }

    /// Returns the bytes that new files have beside contents.
    pub(super) fn bytes_beside_files(&self, captured: &Captured) -> u64 {
        let Some(minimum) = self.in_files() else {
            return 0;
        };
        let on_gpu = captured.on_gpu.iter();
        let files = on_gpu.filter(|on_gpu| on_gpu.bytes >= minimum).count();
        BESIDE.saturating_mul(files as u64)
    }

    /// Returns the bytes that become memory of the container.
    pub(crate) fn bytes_in_container(&self, captured: &Captured) -> u64 {
        let in_files = self.bytes_in_files(captured);
        captured.to_host_bytes.saturating_sub(in_files)
    }

    /// Returns the part that CRIU dumps, if all goes well, and why.
    pub fn by_criu(&self, captured: &Captured) -> Option<ByCriu> {
        let cause = match self {
            Self::ByCriu(cause) => cause.clone(),
            Self::ToImage { minimum } | Self::Staged { minimum } => {
                Cause::Little { minimum: *minimum }
            }
        };
        let bytes = self.bytes_in_container(captured);
        (bytes > 0).then_some(ByCriu { bytes, cause })
    }
}

fn minimum(settings: &Settings) -> u64 {
    settings.gpu_checkpoint.minimum_mib << 20
}

#[cfg(test)]
mod tests;
