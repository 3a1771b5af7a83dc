//! Checks free disk space before anything is locked: a disk that fills up in the middle costs a GPU
//! checkpoint, a dump and a rollback.

use std::path::Path;

use stasis_config::{DiskSpace, GpuContents, Settings};

use crate::bulk_memory::places;
use crate::container::mounted::used_bytes;
use crate::container::{Container, ContainerError};
use crate::image::disk_space::{NoDiskSpace, admit, free, is_in_memory};
use crate::operation::estimate::anonymous_of;

/// The most that a checkpoint may write: all contents of GPUs, all memory of processes, and the
/// files that the image carries. It may be less: zeros are not written.
#[derive(Debug, Clone, Copy)]
pub struct MostWritten {
    /// Into the image directory, bytes.
    image: u64,
    /// Into the directory of contents apart from images, bytes.
    apart: u64,
}

impl MostWritten {
    /// Computes it for `gpu_bytes` on GPUs, of which CRIU dumps `by_criu`.
    ///
    /// # Errors
    /// The container's processes cannot be read.
    pub fn of(
        settings: &GpuContents,
        container: &Container,
        gpu_bytes: u64,
        by_criu: u64,
    ) -> Result<Self, ContainerError> {
        let anonymous = anonymous_of(container)?;
        let (in_image, apart) = match settings.directory() {
            None => (gpu_bytes, 0),
            // Contents that a tmpfs has no room for go into the image.
            Some(apart) if places::in_memory(apart) && lacks(apart, gpu_bytes) => (gpu_bytes, 0),
            Some(_) => (by_criu, gpu_bytes.saturating_sub(by_criu)),
        };
        let image = anonymous.saturating_add(in_image);
        let image = image.saturating_add(used_bytes(container));
        Ok(Self { image, apart })
    }

    /// Refuses if the disk of the image directory has less free space.
    ///
    /// # Errors
    /// [`NoDiskSpace`], with both figures.
    pub fn admit_to_image(self, settings: &Settings, directory: &Path) -> Result<(), NoDiskSpace> {
        match settings.preflight.disk_space {
            DiskSpace::Ignore => Ok(()),
            _ => admit(directory, self.image),
        }
    }

    /// Refuses if one of the disks has less free space.
    ///
    /// # Errors
    /// [`NoDiskSpace`], with both figures.
    pub(super) fn admit(self, settings: &Settings, image: &Path) -> Result<(), NoDiskSpace> {
        self.admit_to_image(settings, image)?;
        self.admit_apart(settings)
    }

    /// Returns the bytes of host memory that the image takes, since its directory is on a tmpfs: a
    /// tmpfs reports its own limit as free, not the memory of the host.
    pub(super) fn in_memory(self, settings: &Settings, directory: &Path) -> u64 {
        match settings.preflight.disk_space {
            DiskSpace::Ignore => 0,
            _ if is_in_memory(directory) => self.image,
            _ => 0,
        }
    }

    /// Refuses if the disk of contents apart from images has less free space.
    ///
    /// # Errors
    /// [`NoDiskSpace`], with both figures.
    pub fn admit_apart(self, settings: &Settings) -> Result<(), NoDiskSpace> {
        match (
            settings.preflight.disk_space,
            settings.gpu_contents.directory(),
        ) {
            (DiskSpace::Ignore, _) | (_, None) => Ok(()),
            (_, Some(apart)) => admit(apart, self.apart),
        }
    }
}

fn lacks(directory: &Path, bytes: u64) -> bool {
    matches!(free(directory), Ok(Some(free)) if free < bytes)
}
