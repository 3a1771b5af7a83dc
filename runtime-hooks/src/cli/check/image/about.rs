//! What a manifest says, for people.

use std::fmt;

use serde::Serialize;

use crate::cli::answer::name;
use crate::cuda::nvml::Gpu;
use crate::image::manifest::{MadeOn, Manifest, StoredMemory};

/// What a manifest says.
#[derive(Debug, Serialize)]
pub struct About {
    /// The version of its format.
    pub version: u32,
    /// The program that wrote it.
    pub written_by: String,
    /// When the checkpoint began.
    pub created: String,
    /// The container.
    pub container: String,
    /// The driver of its GPU state.
    pub driver_version: String,
    /// The number of its processes with GPU state.
    pub processes: usize,
    /// The GPUs that they used.
    pub gpus: Vec<Gpu>,
    /// All their GPU memory, bytes.
    pub gpu_bytes: u64,
    /// Its bulk memory.
    pub memory: Option<StoredMemory>,
    /// The number of its files, if they are listed with their checksums.
    pub files: Option<usize>,
    /// The machine, if it is told.
    pub made_on: Option<MadeOn>,
}

impl About {
    pub(super) fn of(manifest: &Manifest) -> Self {
        Self {
            version: manifest.version(),
            written_by: manifest.written_by.clone(),
            created: manifest.created.clone(),
            container: manifest.container.clone(),
            driver_version: manifest.driver_version.clone(),
            processes: manifest.processes.len(),
            gpus: manifest.used_gpus(),
            gpu_bytes: manifest.gpu_bytes(),
            memory: manifest.memory.clone(),
            files: manifest.files.as_ref().map(Vec::len),
            made_on: manifest.made_on.clone(),
        }
    }
}

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.version;
        let written_by = name(&self.written_by);
        let (created, container) = (name(&self.created), name(&self.container));
        write!(
            f,
            "  of container {container}, {created}, by {written_by} (version {version})"
        )?;
        if self.processes > 0 {
            let (processes, mib) = (self.processes, self.gpu_bytes >> 20);
            let driver = name(&self.driver_version);
            write!(
                f,
                "\n  {processes} processes with GPU state of {mib} MiB, of driver {driver}"
            )?;
        }
        for gpu in &self.gpus {
            write!(f, "\n  {} ({})", gpu.uuid, name(&gpu.name))?;
        }
        Ok(())
    }
}
