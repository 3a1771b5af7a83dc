//! Looks for room on disks before anything is locked: a disk that is full in the middle costs a GPU
//! checkpoint, a dump and a rollback.

use std::path::Path;

use stasis_config::{BulkMemory, DiskSpace, MemoryTier, Settings};

use crate::bulk_memory::plugin::{DumpUse, Plugins};
use crate::bulk_memory::stores::{Stores, newest_of};
use crate::container::{Container, ContainerError};
use crate::context::Context;
use crate::error::Refusal;
use crate::image::disk_space::{NoDiskSpace, admit};
use crate::operation::estimate::anonymous_of;
use crate::request::CheckpointRequest;

/// What a checkpoint may write: all contents of GPUs and all memory of processes. That is the most
/// it can be: zeros are not written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MostWritten {
    /// Into the image directory, bytes.
    image: u64,
    /// Into the store of the tier "disk" or "ram", bytes.
    store: u64,
}

impl MostWritten {
    /// `plugin` is what our plugin is of use for.
    ///
    /// # Errors
    /// The container's processes cannot be read.
    pub(crate) fn of(
        settings: &BulkMemory,
        container: &Container,
        plugin: &DumpUse,
        gpu_bytes: u64,
    ) -> Result<Self, ContainerError> {
        let anonymous = anonymous_of(container).map_err(ContainerError::Processes)?;
        let all = anonymous.saturating_add(gpu_bytes);
        let (image, store) = match (plugin, settings.tier) {
            (DumpUse::Nothing(_), _) | (_, MemoryTier::Portable) => (all, 0),
            (DumpUse::Memory, _) if settings.heaps => (0, all),
            (DumpUse::Memory | DumpUse::Files(_), _) => (anonymous, gpu_bytes),
        };
        Ok(Self { image, store })
    }

    /// Refuses if the disk of the image directory has less room.
    ///
    /// # Errors
    /// [`NoDiskSpace`], with both figures.
    pub(crate) fn admit_to_image(
        self,
        settings: &Settings,
        directory: &Path,
    ) -> Result<(), NoDiskSpace> {
        match settings.preflight.disk_space {
            DiskSpace::Ignore => Ok(()),
            _ => admit(directory, self.image),
        }
    }

    /// Refuses if the disk of the tier "disk" has less room. What has not changed since an earlier
    /// checkpoint of the container is not stored again; and the tier "ram" sees to its own room.
    ///
    /// # Errors
    /// [`NoDiskSpace`], with both figures.
    pub(crate) fn admit_to_store(self, context: &Context, id: &str) -> Result<(), NoDiskSpace> {
        let settings = &context.settings;
        let stores = Stores::of(settings);
        let has_earlier = || newest_of(&stores.disk, id, &context.root).is_some();
        let is_on_disk = settings.bulk_memory.tier == MemoryTier::Disk;
        let ignores = settings.preflight.disk_space == DiskSpace::Ignore;
        if ignores || self.store == 0 || !is_on_disk || has_earlier() {
            return Ok(());
        }
        admit(&stores.disk, self.store)
    }
}

/// Refuses a checkpoint if a disk has no room for it.
///
/// # Errors
/// [`Refusal::NoDiskSpace`], with both figures.
pub(super) fn refuse_full(
    context: &Context,
    options: &CheckpointRequest,
    container: &Container,
    plugins: &Plugins,
    gpu_bytes: u64,
) -> Result<(), Refusal> {
    let settings = &context.settings;
    if settings.preflight.disk_space == DiskSpace::Ignore {
        return Ok(());
    }
    let most = MostWritten::of(&settings.bulk_memory, container, &plugins.ours, gpu_bytes)?;
    most.admit_to_image(settings, &options.image_path)?;
    Ok(most.admit_to_store(context, &options.id)?)
}
