//! Why this machine, or the new container, cannot take the GPU state of an image or of a paused
//! container. These errors come before any change, so the operation can be tried again.

use std::io;

use crate::container::spec::SpecError;
use crate::cuda::GpuUuid;
use crate::cuda::nvml::InventoryError;
use crate::ledger::amounts::Short;

/// Why GPU state is not restored.
#[derive(Debug, thiserror::Error)]
pub enum AdmissionError {
    /// The new container's specification cannot be read.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The new container has neither a GPU of the image nor a replacement for it.
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
        /// The GPUs of the new container, with their names.
        given: String,
    },
    /// A GPU of a paused container is no longer on this machine.
    #[error(
        "the container's GPU state belongs on {uuid}, which is not on this machine any more (it \
         has {there}); bring it back and resume again, or kill the container"
    )]
    GpuVanished {
        /// The GPU.
        uuid: GpuUuid,
        /// The GPUs of this machine, with their names.
        there: String,
    },
    /// NVML cannot report on a GPU of a paused container.
    #[error(
        "the container's GPU state belongs on {uuid}, and NVML cannot report on it: {what}; see \
         dmesg (Xid) and nvidia-smi; reset the GPU and resume again, or kill the container and \
         restore an image on another GPU"
    )]
    GpuUnread {
        /// The GPU.
        uuid: GpuUuid,
        /// NVML's error.
        what: String,
    },
    /// A GPU map that is not valid.
    #[error("the GPU map in {origin} cannot be used: {what}")]
    Map {
        /// The annotation or the settings.
        origin: &'static str,
        /// The problem.
        what: String,
    },
    /// The GPU is in MIG mode.
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
    /// Without persistence mode the driver's restore fails with "not permitted".
    #[error(
        "{uuid} is not in persistence mode, without which the driver restores nothing; switch it \
         on (nvidia-smi -pm 1), or set restore.persistence = \"ignore\" in the settings"
    )]
    NoPersistence {
        /// The GPU.
        uuid: GpuUuid,
    },
    /// NVML does not report how much memory is free.
    #[error(transparent)]
    Inventory(#[from] InventoryError),
    /// What others have reserved cannot be read, or nothing can be reserved.
    #[error("cannot use the ledger of memory, below the state directory")]
    Ledger(#[source] io::Error),
    /// The GPU has too little free memory; the driver would lose the processes.
    #[error(
        "{} has {} free{}, and {what} needs {} MiB; make room and {again} again",
        .short.resource, .short.free, .short.reserved, .short.wanted.div_ceil(1 << 20)
    )]
    NoRoom {
        /// The GPU, and how much it has.
        short: Box<Short>,
        /// "the image" or "the container".
        what: &'static str,
        /// "restore" or "resume".
        again: &'static str,
    },
    /// The machine has too little memory, whoever goes.
    #[error(
        "the image needs {} MiB of host memory, and this machine has {} MiB in all",
        .needed.div_ceil(1 << 20), .total >> 20
    )]
    SmallHost {
        /// Bytes needed.
        needed: u64,
        /// All of the machine's, bytes.
        total: u64,
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
    /// The CPU lacks what programs of the image may have chosen.
    #[error(
        "the image was made on a machine whose CPU has {lacking}, and this one has not: a program \
         that uses it would end with SIGILL, maybe later; restore where it is, or set restore.cpu \
         = \"ignore\" in the settings"
    )]
    OtherCpu {
        /// The names, as in /proc/cpuinfo.
        lacking: String,
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
        /// The GPU that would replace it.
        new: GpuUuid,
    },
}
