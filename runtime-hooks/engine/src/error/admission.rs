//! Why this machine, or the new container, cannot take the GPU state of an image or of a paused
//! container. These errors come before any change, so the operation can be tried again.

use std::io;

use stasis_gpu::cuda::GpuUuid;
use stasis_gpu::cuda::nvml::InventoryError;
use stasis_gpu::ledger::amounts::Short;

use crate::container::spec::SpecError;

/// Why GPU state is not restored.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum AdmissionError {
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error(
        "the image has state of {uuid} ({name}), and the new container is given neither it nor \
         another of its kind to spare: it has {given}; give it as many GPUs of this kind as the \
         image has state of, and restore again"
    )]
    NoGpu {
        uuid: GpuUuid,
        name: String,
        given: String,
    },
    #[error(
        "the container's GPU state belongs on {uuid}, which is not on this machine any more (it \
         has {there}); bring it back and resume again, or kill the container"
    )]
    GpuVanished { uuid: GpuUuid, there: String },
    #[error(
        "the container's GPU state belongs on {uuid}, and NVML cannot report on it: {what}; see \
         dmesg (Xid) and nvidia-smi; reset the GPU and resume again, or kill the container and \
         restore an image on another GPU"
    )]
    GpuUnread { uuid: GpuUuid, what: String },
    #[error("the GPU map in {origin} cannot be used: {what}")]
    Map { origin: &'static str, what: String },
    #[error(
        "{uuid} is in MIG mode, and the driver restores nothing to such a GPU; switch MIG off \
         (nvidia-smi -mig 0) or give the container another GPU"
    )]
    Mig { uuid: GpuUuid },
    #[error(
        "{uuid} is used through MPS (process {client}), and the driver restores nothing to such a \
         GPU; end MPS there (echo quit | nvidia-cuda-mps-control) or give the container another GPU"
    )]
    Mps { uuid: GpuUuid, client: i32 },
    /// Without persistence mode the driver's restore fails with "not permitted".
    #[error(
        "{uuid} is not in persistence mode, without which the driver restores nothing; switch it \
         on (nvidia-smi -pm 1), or set restore.persistence = \"ignore\" in the settings"
    )]
    NoPersistence { uuid: GpuUuid },
    #[error(transparent)]
    Inventory(#[from] InventoryError),
    #[error("cannot use the ledger of memory, below the state directory")]
    Ledger(#[source] io::Error),
    /// The GPU has too little free memory; the driver would lose the processes.
    #[error(
        "{} has {} free{}, and {what} needs {} MiB; make room and {again} again",
        .short.resource, .short.free, .short.reserved, .short.wanted.div_ceil(1 << 20)
    )]
    NoRoom {
        short: Box<Short>,
        /// "the image" or "the container".
        what: &'static str,
        /// "restore" or "resume".
        again: &'static str,
    },
    #[error(
        "the image needs {} MiB of host memory, and this machine has {} MiB in all",
        .needed.div_ceil(1 << 20), .total >> 20
    )]
    SmallHost { needed: u64, total: u64 },
    #[error(
        "the image was made with driver {image}, and this machine has the older {here}; restore \
         it with {image} or newer"
    )]
    OlderDriver { image: String, here: String },
    #[error(
        "the image was made on a machine whose CPU has {lacking}, and this one has not: a program \
         that uses it would end with SIGILL, maybe later; restore where it is, or set restore.cpu \
         = \"ignore\" in the settings"
    )]
    OtherCpu { lacking: String },
    #[error(
        "driver {here} cannot restore {old} to {new}; other GPUs need driver 580 or newer, so \
         give the container {old}"
    )]
    NoMigration {
        here: String,
        old: GpuUuid,
        new: GpuUuid,
    },
}
