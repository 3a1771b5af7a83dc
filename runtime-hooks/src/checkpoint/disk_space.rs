//! Looks for room on disks before anything is locked: a disk that is full in the middle costs a GPU
//! checkpoint, a dump and a rollback.

use std::path::Path;

use stasis_config::{BulkMemory, DiskSpace, MemoryTier, Settings};

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
    /// With so many bytes on GPUs, of which CRIU dumps `by_criu`.
    ///
    /// # Errors
    /// The container's processes cannot be read.
    pub(crate) fn of(
        settings: &BulkMemory,
        container: &Container,
        gpu_bytes: u64,
        by_criu: u64,
    ) -> Result<Self, ContainerError> {
        let anonymous = anonymous_of(container).map_err(ContainerError::Processes)?;
        let (in_image, store) = match settings.tier {
            MemoryTier::Portable => (gpu_bytes, 0),
            _ => (by_criu, gpu_bytes.saturating_sub(by_criu)),
        };
        let image = anonymous.saturating_add(in_image);
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
    gpu_bytes: u64,
    by_criu: u64,
) -> Result<(), Refusal> {
    let settings = &context.settings;
    if settings.preflight.disk_space == DiskSpace::Ignore {
        return Ok(());
    }
    let most = MostWritten::of(&settings.bulk_memory, container, gpu_bytes, by_criu)?;
    most.admit_to_image(settings, &options.image_path)?;
    Ok(most.admit_to_store(context, &options.id)?)
}
