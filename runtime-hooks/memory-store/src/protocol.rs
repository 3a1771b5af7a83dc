//! What engine and CRIU plugin tell each other, in JSON files in the operation's directory.
//!
//! 1. The engine writes a [`DumpRequest`] or [`RestoreRequest`] and starts CRIU (by way of runc)
//!    with [`REQUEST_VARIABLE`] in its environment. Without that variable the plugin takes nothing
//!    in a dump, and restores what an image has.
//! 2. The plugin locks the request file (flock(2)) as long as it, or a process that it forked,
//!    works on the tasks. The engine waits for that lock before it touches them.
//! 3. It writes how far it has come to the file `progress`, again and again.
//! 4. It writes a [`Report`] once memory was taken or given back, and replaces it if more happens.
//!    A dump without a report, or one that does not count all areas, has failed.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ImageId;

/// The environment variable that names the file with the request.
pub const REQUEST_VARIABLE: &str = "STASIS_MEMORY_REQUEST";
/// Far larger than any [`Report`].
pub const MAX_REPORT_BYTES: u64 = 1 << 20;

/// Where packs lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// In the image directory, so that an image that is copied carries everything.
    Portable,
    /// In a directory of their own on a disk, written with O_DIRECT.
    Disk,
    /// In a tmpfs of huge pages, from where they are written to the disk directory later.
    Ram,
}

/// Compression of chunks by zstd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compression {
    /// 1 to 19; negative ones are the fast levels.
    pub level: i32,
}

/// What becomes of the tasks after a dump that succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum After {
    /// They are killed: their memory need not come back.
    End,
    /// They go on.
    GoOn,
}

/// Which memory is taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Take {
    /// GPU contents alone.
    GpuContents(Vec<GpuContents>),
    /// Large private areas of all processes, with the GPU contents among them.
    Heaps,
    /// None: the engine has stored all that is to be stored, and written the index, whose areas are
    /// holes of the image.
    Nothing,
}

/// Where the GPU contents of a process are for the time of the dump.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuContents {
    /// In the container.
    pub pid: i32,
    /// Start and end addresses of whole pages, in their order.
    pub ranges: Vec<(u64, u64)>,
}

/// The container's CUDA processes, whose GPU state is in their memory for the time of the dump. All
/// pids are those in the container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CudaPids {
    /// The manifest lists their GPU state: each must be among the processes that CRIU dumps.
    pub recorded: Vec<i32>,
    /// `exec` started them, and a restore would not give them their GPU state: none may be among
    /// the processes that CRIU dumps.
    pub exec: Vec<i32>,
}

/// A process that makes the manifest and CRIU's process tree differ, by its pid in the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TreeMismatch {
    /// Of [`CudaPids::recorded`], and CRIU does not dump it: it has ended.
    Ended(i32),
    /// Of [`CudaPids::exec`], and CRIU dumps it: it has become a child of the container's init.
    Adopted(i32),
}

/// For a dump.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DumpRequest {
    /// The name of what is stored.
    pub image_id: ImageId,
    /// Where packs lie.
    pub tier: Tier,
    /// Their directory, which does not exist yet; of [`Tier::Disk`] and [`Tier::Ram`] only.
    pub directory: Option<PathBuf>,
    /// The directory of an earlier checkpoint of the same container, whose chunks are used again.
    pub earlier: Option<PathBuf>,
    /// How many threads work at most.
    pub threads: usize,
    /// None: contents are stored as they are.
    pub compression: Option<Compression>,
    /// What becomes of the tasks.
    pub after: After,
    /// Which memory is taken.
    pub take: Take,
    /// Areas with less in them are left to CRIU, MiB.
    pub minimum_mib: u64,
    /// The plugin fails the dump, before it changes anything, if these do not fit CRIU's tree.
    #[serde(default)]
    pub cuda: CudaPids,
    /// A file for the progress: "BYTES TOTAL\n" in decimal, overwritten in place.
    pub progress: Option<PathBuf>,
    /// A file for the [`Report`].
    pub report: Option<PathBuf>,
}

/// For a restore.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreRequest {
    /// The name that the manifest has; none of an image without bulk memory.
    #[serde(default)]
    pub image_id: Option<ImageId>,
    /// The directory of the packs, unless they are in the image directory.
    pub directory: Option<PathBuf>,
    /// How many threads work at most.
    pub threads: usize,
    /// Who fills the holes of the image.
    #[serde(default)]
    pub holes: Holes,
    /// The directory of the container's cgroup that has the freezer. The plugin freezes it before
    /// CRIU lets the tasks go: nothing of the container runs then.
    #[serde(default)]
    pub freeze: Option<PathBuf>,
    /// As in [`DumpRequest`].
    pub progress: Option<PathBuf>,
    /// As in [`DumpRequest`].
    pub report: Option<PathBuf>,
}

/// Who fills the holes of an image ([`CriuHas::Hole`](crate::CriuHas::Hole)) at a restore.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holes {
    /// Nobody: a restore of an image that has some fails.
    #[default]
    Nobody,
    /// The engine, before any task runs. The plugin leaves them alone.
    Engine,
}

/// How a dump or restore went.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Processes whose memory was taken, or given back.
    pub processes: usize,
    /// Their areas.
    pub areas: usize,
    /// Bytes in pages that had contents.
    pub bytes: u64,
    /// Of it, bytes that are zero.
    pub zero_bytes: u64,
    /// Bytes that an earlier checkpoint has stored already.
    pub reused_bytes: u64,
    /// Bytes that were written, after compression.
    pub stored_bytes: u64,
    /// How long the copying took, seconds.
    pub copy_seconds: f64,
    /// How long tasks emptied their areas, seconds.
    pub empty_seconds: f64,
    /// Why the earlier checkpoint's memory could not be used again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_reused: Option<String>,
    /// Why memory was left to CRIU, if it was.
    pub left_to_criu: Vec<String>,
    /// What failed.
    pub error: Option<String>,
    /// Why the dump was refused, if the request's processes did not fit CRIU's tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mismatch: Option<TreeMismatch>,
    /// Why tasks did not get their memory back. They wait for it.
    #[serde(default)]
    pub not_returned: Option<String>,
}
