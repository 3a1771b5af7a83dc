//! The contents of a manifest.

use serde::Serialize;

use crate::cuda::nvml::Gpu;
use crate::image::manifest::{MadeOn, Manifest, StoredMemory};

/// The contents of a manifest.
#[derive(Debug, Serialize)]
pub(crate) struct About {
    /// The version of its format.
    pub(crate) version: u32,
    /// The program that wrote it.
    pub(crate) written_by: String,
    /// When the checkpoint began.
    pub(crate) created: String,
    /// The container.
    pub(crate) container: String,
    /// The driver of its GPU state.
    pub(crate) driver_version: String,
    /// The number of its processes with GPU state.
    pub(crate) processes: usize,
    /// The GPUs that they used.
    pub(crate) gpus: Vec<Gpu>,
    /// All their GPU memory, bytes.
    pub(crate) gpu_bytes: u64,
    /// Its bulk memory.
    pub(crate) memory: Option<StoredMemory>,
    /// The number of its files, if they are listed with their checksums.
    pub(crate) files: Option<usize>,
    /// The machine, if it is told.
    pub(crate) made_on: Option<MadeOn>,
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
