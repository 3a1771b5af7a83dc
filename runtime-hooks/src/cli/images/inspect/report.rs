//! What is shown of one image.

use std::path::{Path, PathBuf};

use serde::Serialize;
use stasis_config::Settings;
use stasis_memory_store::{Index, PacksIn};

use crate::cli::command_error::CommandError;
use crate::cli::command_error::ImageError;
use crate::cli::images::origin::Origin;
use crate::cli::images::row::files_in;
use crate::cli::images::whose::Whose;
use crate::cli::locate::engine::Engine;
use crate::cli::log::line::{Line, read};
use crate::cuda::GpuUuid;
use crate::cuda::gpu_use::{CudaProcess, GpuBytes, add};
use crate::image::directory::{has_inventory, is_ours, is_settled};
use crate::image::files::ImageFile;
use crate::image::manifest::Manifest;
use crate::operation::group::{self, GroupMember};
use crate::operation::timeline::Phase;

/// An image, by what it says of itself.
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
    /// The processes with GPU state.
    pub(super) processes: Vec<CudaProcess>,
    /// As operations.log has them, or else the manifest, which knows those before the dump.
    pub(super) phases: Vec<Phase>,
    /// The files that a restore reads; `None` if they are not listed.
    pub(super) files: Option<Vec<ImageFile>>,
    /// The containers that were checkpointed together with this one, and this one.
    pub(super) group: Option<Vec<String>>,
    pub(super) origin: Option<Origin>,
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
        let index = Index::read(&image)?;
        let sizes = Sizes::of(&image, manifest.as_ref(), index.as_ref());
        let of_container = manifest
            .as_ref()
            .map(|manifest| manifest.container.as_str());
        let whose = Whose::of(&image, of_container);
        let report = Self {
            container: whose.id,
            name: whose.known.name,
            engine: whose.known.engine,
            container_image: whose.container_image,
            created: None,
            written_by: None,
            driver_version: None,
            gpus: Vec::new(),
            sizes,
            processes: Vec::new(),
            phases: Vec::new(),
            files: None,
            group: group_of(&image),
            origin: Origin::of(&image),
            notes: Vec::new(),
            image,
        };
        Ok(match manifest {
            Some(manifest) => report.with(settings, manifest),
            None => report,
        })
    }

    fn with(self, settings: &Settings, manifest: Manifest) -> Self {
        let (phases, notes) = match logged(settings, &self.image, &manifest) {
            Some(line) => (line.phases, line.notes),
            None => (manifest.phases.clone(), Vec::new()),
        };
        Self {
            gpus: gpus(&manifest),
            created: Some(manifest.created),
            written_by: Some(manifest.written_by),
            driver_version: Some(manifest.driver_version),
            processes: manifest.processes,
            files: manifest.files,
            phases,
            notes,
            ..self
        }
    }
}

/// The names of the containers of a complete group that an image is of.
fn group_of(image: &Path) -> Option<Vec<String>> {
    let group = group::find(image.parent()?).ok()??;
    let directory = image.file_name()?.to_str()?;
    let members = || group.containers.iter();
    members().find(|member| member.image == directory)?;
    let name = |member: &GroupMember| member.name.as_ref().unwrap_or(&member.id).clone();
    Some(members().map(name).collect())
}

/// The directory itself, or the one that an engine has put into it.
fn directory_of(named: &Path) -> Result<PathBuf, ImageError> {
    let is_image = |directory: &Path| has_inventory(directory) || is_ours(directory);
    let within = named.join("checkpoint");
    let image = if !is_image(named) && is_image(&within) {
        within
    } else {
        named.to_owned()
    };
    if !is_settled(&image) {
        return Err(ImageError::CutOff(image));
    }
    if !is_image(&image) {
        return Err(ImageError::NoImage(image));
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
    fn of(image: &Path, manifest: Option<&Manifest>, index: Option<&Index>) -> Self {
        let memory = manifest.and_then(|manifest| manifest.memory.as_ref());
        let mut sizes = Self {
            process_bytes: 0,
            gpu_bytes: manifest.map_or(0, Manifest::gpu_bytes),
            bulk_bytes: index.map(Index::stored_bytes),
            packs_in: memory.map(|memory| memory.packs_in),
            files: 0,
            file_bytes: 0,
        };
        for (name, bytes) in files_in(image) {
            sizes.files += 1;
            sizes.file_bytes = sizes.file_bytes.saturating_add(bytes);
            if name.starts_with("pages-") && name.ends_with(".img") {
                sizes.process_bytes = sizes.process_bytes.saturating_add(bytes);
            }
        }
        sizes
    }
}
