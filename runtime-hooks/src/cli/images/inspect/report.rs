//! What is shown of one image.

use std::path::{Path, PathBuf};

use serde::Serialize;
use stasis_config::Settings;
use stasis_memory_store::{Index, PacksIn};

use super::process::{Process, joined};
use crate::cli::check::image::CheckImageError;
use crate::cli::command_error::CommandError;
use crate::cli::images::whose::Whose;
use crate::cli::locate::engine::Engine;
use crate::cli::log::line::{Line, read};
use crate::cuda::GpuUuid;
use crate::cuda::gpu_use::{GpuBytes, add};
use crate::image::contents::{Contents, Files, Mount, Statistics};
use crate::image::directory::{has_inventory, is_ours, is_settled};
use crate::image::manifest::Manifest;
use crate::operation::timeline::Phase;

/// What is in an image.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Its directory.
    pub(super) image: PathBuf,
    pub(super) container: Option<String>,
    pub(super) name: Option<String>,
    pub(super) engine: Option<Engine>,
    /// What the container was made from.
    pub(super) container_image: Option<String>,
    pub(super) created: Option<String>,
    pub(super) written_by: Option<String>,
    pub(super) driver_version: Option<String>,
    pub(super) gpus: Vec<Gpu>,
    pub(super) sizes: Sizes,
    pub(super) processes: Vec<Process>,
    pub(super) mounts: Vec<Mount>,
    /// As operations.log has them, or else the manifest, which knows those before the dump.
    pub(super) phases: Vec<Phase>,
    pub(super) criu: Option<Statistics>,
    pub(super) notes: Vec<String>,
}

/// A GPU that the processes used.
#[derive(Debug, Serialize)]
pub(super) struct Gpu {
    pub(super) uuid: GpuUuid,
    pub(super) product: String,
    /// All that it has.
    pub(super) total_bytes: u64,
    /// What the processes held.
    pub(super) memory_bytes: u64,
}

/// What takes room, in bytes.
#[derive(Debug, Serialize)]
pub(super) struct Sizes {
    /// Memory of processes that CRIU has in the image.
    pub(super) process_bytes: u64,
    /// What the processes held on GPUs.
    pub(super) gpu_bytes: u64,
    /// Bulk memory as it is stored: GPU contents that CRIU does not have.
    pub(super) bulk_bytes: Option<u64>,
    /// Where that lies: in the image, or apart from it.
    pub(super) packs_in: Option<PacksIn>,
    pub(super) files: usize,
    /// Of all files in the image directory.
    pub(super) file_bytes: u64,
}

impl Report {
    pub(super) fn of(settings: &Settings, named: &Path) -> Result<Self, CommandError> {
        let image = directory_of(named)?;
        let manifest = Manifest::read(&image)?;
        let files = Files::of(&image)?;
        let contents = Contents::read(&files)?;
        let index = Index::read(&image)?;
        let manifest = manifest.as_ref();
        let logged = manifest.and_then(|manifest| logged(settings, &image, manifest));
        let whose = Whose::of(&image, manifest.map(|manifest| manifest.container.as_str()));
        let (notes, phases) = logged.map_or_else(
            || (Vec::new(), manifest.map(|manifest| manifest.phases.clone())),
            |line| (line.notes, Some(line.phases)),
        );
        Ok(Self {
            container: whose.id,
            name: whose.known.name,
            engine: whose.known.engine,
            container_image: whose.container_image,
            created: manifest.map(|manifest| manifest.created.clone()),
            written_by: manifest.map(|manifest| manifest.written_by.clone()),
            driver_version: manifest.map(|manifest| manifest.driver_version.clone()),
            gpus: manifest.map(gpus).unwrap_or_default(),
            sizes: Sizes::of(&files, manifest, index.as_ref()),
            processes: joined(contents.processes, manifest),
            mounts: contents.mounts,
            phases: phases.unwrap_or_default(),
            criu: contents.statistics,
            notes,
            image,
        })
    }
}

/// The directory itself, or the one that an engine has put into it.
fn directory_of(named: &Path) -> Result<PathBuf, CheckImageError> {
    let is_image = |directory: &Path| has_inventory(directory) || is_ours(directory);
    let within = named.join("checkpoint");
    let image = if !is_image(named) && is_image(&within) {
        within
    } else {
        named.to_owned()
    };
    if !is_settled(&image) {
        return Err(CheckImageError::CutOff(image));
    }
    if !is_image(&image) {
        return Err(CheckImageError::NoImage(image));
    }
    Ok(image)
}

/// What was logged of its checkpoint.
fn logged(settings: &Settings, image: &Path, manifest: &Manifest) -> Option<Line> {
    let image = std::path::absolute(image).ok()?;
    let mut found = None;
    let is_its = |line: &Line| {
        line.operation == "checkpoint"
            && line.container == manifest.container
            && line.image_path.as_ref() == Some(&image)
            && !line.has_failed()
    };
    // Without the log its manifest says less.
    read(&settings.paths.log_dir, |line| {
        if is_its(&line) {
            found = Some(line);
        }
    })
    .ok()?;
    found
}

/// The GPUs that its processes used.
pub(super) fn gpus(manifest: &Manifest) -> Vec<Gpu> {
    let mut held = GpuBytes::new();
    for process in &manifest.processes {
        add(&mut held, &process.gpu_bytes());
    }
    let used = manifest.used_gpus().into_iter();
    used.map(|gpu| Gpu {
        memory_bytes: held.get(&gpu.uuid).copied().unwrap_or_default(),
        uuid: gpu.uuid,
        product: gpu.name,
        total_bytes: gpu.memory_bytes,
    })
    .collect()
}

impl Sizes {
    fn of(files: &Files, manifest: Option<&Manifest>, index: Option<&Index>) -> Self {
        let sum = |is_meant: &dyn Fn(&str) -> bool| {
            let meant = files.names().iter().filter(|(name, _)| is_meant(name));
            meant.map(|(_, bytes)| *bytes).fold(0, u64::saturating_add)
        };
        let memory = manifest.and_then(|manifest| manifest.memory.as_ref());
        Self {
            process_bytes: sum(&|name| name.starts_with("pages-") && name.ends_with(".img")),
            gpu_bytes: manifest.map_or(0, Manifest::gpu_bytes),
            bulk_bytes: index.map(Index::stored_bytes),
            packs_in: memory.map(|memory| memory.packs_in),
            files: files.names().len(),
            file_bytes: sum(&|_| true),
        }
    }
}
