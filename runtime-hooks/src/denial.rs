//! Why this machine, or the new container, cannot take the GPU state of an image or of a paused
//! container. Nothing has been changed when one of these is seen, and it can be tried again.

use crate::cuda::GpuUuid;
use crate::spec::SpecError;

/// Why GPU state is not restored.
#[derive(Debug, thiserror::Error)]
pub enum Denial {
    /// The new container's specification cannot be read.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A GPU of the image is not given to the new container, and none takes its place.
    #[error(
        "the image has state of {uuid} ({name}), and the new container is given neither it nor \
         another of its kind to spare: it has {given}; give it as many GPUs of this kind as the \
         image has state of, and restore again"
    )]
    NoGpu {
        /// The GPU at checkpoint.
        uuid: GpuUuid,
        /// Its product name.
        name: String,
        /// The GPUs that are given, with their names.
        given: String,
    },
    /// A GPU on which a paused container was has vanished.
    #[error(
        "the container's GPU state belongs on {uuid}, which is not on this machine any more (it \
         has {there}); bring it back and resume again, or kill the container"
    )]
    GpuVanished {
        /// The GPU.
        uuid: GpuUuid,
        /// The GPUs that are there, with their names.
        there: String,
    },
    /// A GPU map that is not one.
    #[error("the GPU map in {whence} cannot be used: {what}")]
    Map {
        /// The annotation or the settings.
        whence: &'static str,
        /// What is wrong with it.
        what: String,
    },
    /// The GPU is divided.
    #[error(
        "{uuid} is in MIG mode, and the driver restores nothing to such a GPU; switch MIG off \
         (nvidia-smi -mig 0) or give the container another GPU"
    )]
    Mig {
        /// The GPU.
        uuid: GpuUuid,
    },
    /// The GPU is shared through an MPS server.
    #[error(
        "{uuid} is used through MPS (process {client}), and the driver restores nothing to such a \
         GPU; end MPS there (echo quit | nvidia-cuda-mps-control) or give the container another GPU"
    )]
    Mps {
        /// The GPU.
        uuid: GpuUuid,
        /// One of the processes.
        client: i32,
    },
    /// The driver would say "not permitted".
    #[error(
        "{uuid} is not in persistence mode, without which the driver restores nothing; switch it \
         on (nvidia-smi -pm 1), or set restore.persistence = \"ignore\" in the settings"
    )]
    NoPersistence {
        /// The GPU.
        uuid: GpuUuid,
    },
    /// The GPU has too little free memory; the driver would lose the processes.
    #[error(
        "{uuid} has {} MiB free, and {what} needs {} MiB; make room and {again} again",
        .free >> 20, .needed.div_ceil(1 << 20)
    )]
    NoRoom {
        /// The GPU.
        uuid: GpuUuid,
        /// Bytes needed.
        needed: u64,
        /// Bytes free.
        free: u64,
        /// "the image" or "the container".
        what: &'static str,
        /// "restore" or "resume".
        again: &'static str,
    },
    /// The driver is older than the one that made the image.
    #[error(
        "the image was made with driver {image}, and this machine has the older {here}; restore \
         it with {image} or newer"
    )]
    OlderDriver {
        /// The driver of the image.
        image: String,
        /// The driver of this machine.
        here: String,
    },
    /// The driver is too old for another GPU.
    #[error(
        "driver {here} cannot restore {old} to {new}; other GPUs need driver 580 or newer, so \
         give the container {old}"
    )]
    NoMigration {
        /// The driver of this machine.
        here: String,
        /// The GPU at checkpoint.
        old: GpuUuid,
        /// The GPU that it was to become.
        new: GpuUuid,
    },
}
