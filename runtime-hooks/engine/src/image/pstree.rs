//! The processes of an image in CRIU's own words: `pstree.img` and `core-PID.img` (CRIU's
//! images/pstree.proto, core.proto).
//!
//! Our record of a container is from before CRIU stopped its processes. Only CRIU's files show
//! which of them an image has, and with which a restore brings GPU state together.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use prost::Message;
use stasis_linux::file;

#[cfg(fuzzing)]
use crate::image::criu_file;
use crate::image::criu_file::Entries;
use stasis_gpu::cuda::gpu_use::CudaProcess;

/// The magic numbers of the two files (criu/include/magic.h).
const PSTREE_MAGIC: u32 = 0x5027_3030;
pub(super) const CORE_MAGIC: u32 = 0x5505_3847;
/// `COMPEL_TASK_DEAD`: a zombie, which is restored as one.
const TASK_DEAD: u32 = 2;
/// An entry has some 20 bytes and 4 for each thread.
const MAX_BYTES: u64 = 64 << 20;

/// `pstree_entry`, as far as it is needed.
#[derive(Message)]
struct PstreeEntry {
    /// The pid in the container's pid namespace.
    #[prost(uint32, required, tag = "1")]
    pid: u32,
}

/// `core_entry`, as far as it is needed.
#[derive(Message)]
struct CoreEntry {
    #[prost(message, optional, tag = "3")]
    task: Option<TaskCoreEntry>,
}

/// `task_core_entry`, as far as it is needed.
#[derive(Message)]
struct TaskCoreEntry {
    #[prost(uint32, required, tag = "1")]
    task_state: u32,
}

/// Why an image does not have what was recorded of its container.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum PstreeError {
    #[error("cannot read {path}, with which the image was to be verified")]
    Io { path: PathBuf, source: io::Error },
    /// One of CRIU's files is not what CRIU 4 writes.
    #[error("cannot make sense of {path}, with which the image was to be verified: {what}")]
    Malformed { path: PathBuf, what: String },
    #[error(
        "process {pid} ({name}) of the container, whose GPU state was saved, is not in the image: it \
         ended before criu dumped it; try again"
    )]
    WithoutProcess { pid: i32, name: String },
    /// A tmpfs of which CRIU lost the contents.
    #[error(
        "criu wrote no {path}, the contents of {mountpoint} in the container, and did not report \
         it: the image would not restore; the kernel's log may have I/O errors"
    )]
    WithoutTmpfs { path: PathBuf, mountpoint: String },
    /// A process whose GPU state would not be given back.
    #[error(
        "process {pid} ({name}) of the container would be in the image without its GPU state: it was \
         started by exec, and came to the container's init during the checkpoint, since its parent \
         ended; try again"
    )]
    Adopted { pid: i32, name: String },
}

/// Verifies that an image has every process whose GPU state is `recorded`, and none of those that
/// `exec` started, whose GPU state is not recorded.
///
/// # Errors
/// [`PstreeError`]: the image would not restore.
pub fn verify(
    image: &Path,
    recorded: &[CudaProcess],
    exec: &[CudaProcess],
) -> Result<(), PstreeError> {
    if recorded.is_empty() && exec.is_empty() {
        return Ok(());
    }
    Pstree::read(image)?.verify(recorded, exec)
}

/// Reads the list of an image's processes, without which CRIU restores nothing.
///
/// # Errors
/// [`PstreeError`]: CRIU has not written it, or it is damaged.
pub fn read(image: &Path) -> Result<(), PstreeError> {
    Pstree::read(image).map(drop)
}

impl PstreeError {
    /// The manifest has the GPU state of a process that ended.
    pub(crate) fn without(process: &CudaProcess) -> Self {
        Self::WithoutProcess {
            pid: process.pid,
            name: process.name.clone(),
        }
    }

    /// A process of `exec` has become a child of the container's init.
    pub(crate) fn adopted(process: &CudaProcess) -> Self {
        Self::Adopted {
            pid: process.pid,
            name: process.name.clone(),
        }
    }
}

/// The processes of an image, by their pids in the container.
#[derive(Debug)]
struct Pstree<'i> {
    image: &'i Path,
    pids: BTreeSet<u32>,
}

impl<'i> Pstree<'i> {
    fn read(image: &'i Path) -> Result<Self, PstreeError> {
        let entries: Vec<PstreeEntry> = entries(image, "pstree.img", PSTREE_MAGIC)?;
        let pids = entries.into_iter().map(|entry| entry.pid).collect();
        Ok(Self { image, pids })
    }

    fn verify(&self, recorded: &[CudaProcess], exec: &[CudaProcess]) -> Result<(), PstreeError> {
        for process in recorded {
            if !self.has_alive(process.pid)? {
                return Err(PstreeError::without(process));
            }
        }
        for process in exec {
            if self.has_alive(process.pid)? {
                return Err(PstreeError::adopted(process));
            }
        }
        Ok(())
    }

    /// Whether a process is in the image, and not as a zombie.
    fn has_alive(&self, pid: i32) -> Result<bool, PstreeError> {
        let listed = u32::try_from(pid).is_ok_and(|pid| self.pids.contains(&pid));
        if !listed {
            return Ok(false);
        }
        let name = format!("core-{pid}.img");
        let cores: Vec<CoreEntry> = entries(self.image, &name, CORE_MAGIC)?;
        let mut tasks = cores.into_iter().filter_map(|core| core.task);
        Ok(tasks.any(|task| task.task_state != TASK_DEAD))
    }
}

/// Returns the entries of one of CRIU's files.
pub(super) fn entries<T: Message + Default>(
    image: &Path,
    name: &str,
    magic: u32,
) -> Result<Vec<T>, PstreeError> {
    let path = image.join(name);
    let read = file::read(&path, MAX_BYTES);
    let read = read.and_then(|bytes| bytes.ok_or_else(|| io::ErrorKind::NotFound.into()));
    let bytes = read.map_err(|source| PstreeError::Io {
        path: path.clone(),
        source,
    })?;
    parse(&bytes, magic).map_err(|what| PstreeError::Malformed { path, what })
}

pub(super) fn parse<T: Message + Default>(bytes: &[u8], magic: u32) -> Result<Vec<T>, String> {
    Entries::of(bytes, magic)?.collect()
}

/// The fuzz target `criu_image`: the input is what follows the two magic numbers, too.
#[cfg(fuzzing)]
pub fn fuzz(bytes: &[u8]) {
    let _ = parse::<PstreeEntry>(bytes, PSTREE_MAGIC);
    criu_file::fuzz::<PstreeEntry>(bytes, PSTREE_MAGIC);
    criu_file::fuzz::<CoreEntry>(bytes, CORE_MAGIC);
}

#[cfg(test)]
mod tests;
