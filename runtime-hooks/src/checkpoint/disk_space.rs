//! Looks for room on disks before anything is locked: a disk that is full in the middle costs a GPU
//! checkpoint, a dump and a rollback.

use stasis_config::{DiskSpace, MemoryTier};

use crate::bulk_memory::plugin::Plugins;
use crate::bulk_memory::stores::{Stores, newest_of};
use crate::container::{Container, ContainerError};
use crate::context::Context;
use crate::error::Refusal;
use crate::image::disk_space::admit;
use crate::operation::estimate::anonymous_of;
use crate::request::CheckpointRequest;

/// Refuses a checkpoint if there is no room for the contents of GPUs and the memory of processes.
/// That is the most it can be: zeros are not written.
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
    if context.settings.preflight.disk_space == DiskSpace::Ignore {
        return Ok(());
    }
    let anonymous = anonymous_of(container).map_err(ContainerError::Processes)?;
    let memory = &context.settings.bulk_memory;
    let (image, store) = match (&plugins.memory, memory.tier) {
        (Err(_), _) | (Ok(()), MemoryTier::Portable) => (anonymous.saturating_add(gpu_bytes), 0),
        (Ok(()), _) if memory.heaps => (0, anonymous.saturating_add(gpu_bytes)),
        (Ok(()), _) => (anonymous, gpu_bytes),
    };
    admit(&options.image_path, image)?;
    let stores = Stores::of(&context.settings);
    // What has not changed since an earlier checkpoint is not stored again; and the tier "ram" sees
    // to its own room.
    let has_earlier = || newest_of(&stores.disk, &options.id, &context.root).is_some();
    if store > 0 && memory.tier == MemoryTier::Disk && !has_earlier() {
        admit(&stores.disk, store)?;
    }
    Ok(())
}
