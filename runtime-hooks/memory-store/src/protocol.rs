//! The requests for storing contents and to the CRIU plugin, in JSON files in the operation's
//! directory.
//!
//! The engine writes a [`DumpRequest`] for the process that stores, which keeps the file locked
//! (flock(2)) while it works, and for CRIU: a dump with such a request has holes. The engine starts
//! CRIU (by way of runc) with [`REQUEST_VARIABLE`] in its environment. Without that variable the
//! plugin does nothing in a dump, and refuses to restore an image with holes.

use std::path::PathBuf;

use borsh::{BorshDeserialize, BorshSerialize};
use serde::{Deserialize, Serialize};

use crate::ImageId;

/// The environment variable that names the file with the request.
pub const REQUEST_VARIABLE: &str = "STASIS_MEMORY_REQUEST";

/// Where the packs of an image lie.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, BorshSerialize, BorshDeserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum PacksIn {
    /// The image directory, so that an image that is copied carries everything.
    Image,
    /// A directory of their own, apart from the image.
    Directory,
}

/// The request for a dump.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DumpRequest {
    /// The id of the stored memory.
    pub image_id: ImageId,
    /// The directory of its packs, which does not exist yet; `None`: they lie in the image.
    pub directory: Option<PathBuf>,
    /// The most threads.
    pub threads: usize,
    /// Level of zstd, 1 to 19, or a negative one of the fast levels. None: contents are not
    /// compressed.
    pub level: Option<i32>,
    /// A file for the progress: "BYTES TOTAL\n" in decimal, overwritten in place.
    pub progress: Option<PathBuf>,
}

impl DumpRequest {
    /// Where the packs lie.
    pub fn packs_in(&self) -> PacksIn {
        match self.directory {
            None => PacksIn::Image,
            Some(_) => PacksIn::Directory,
        }
    }
}

/// The request for a restore.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreRequest {
    /// The filler of the image's holes.
    #[serde(default)]
    pub holes: Holes,
    /// The image that CRIU is to restore, if it has contents.
    #[serde(default)]
    pub image_id: Option<ImageId>,
    /// The directory of the container's cgroup that has the freezer. The plugin freezes it before
    /// CRIU resumes the tasks: nothing of the container runs then.
    #[serde(default)]
    pub freeze: Option<PathBuf>,
}

/// The filler of an image's holes at a restore.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holes {
    /// No process: a restore of an image that has holes fails.
    #[default]
    Nobody,
    /// The engine, before any task runs. The plugin leaves the holes alone.
    Engine,
}

/// Figures of a store or a load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StoreStatistics {
    /// Processes whose contents were stored.
    pub processes: usize,
    /// Areas of these processes.
    pub areas: usize,
    /// Bytes of contents.
    pub bytes: u64,
    /// Bytes of contents that are zero.
    pub zero_bytes: u64,
    /// Bytes that were stored already.
    pub reused_bytes: u64,
    /// Bytes that were written, after compression.
    pub stored_bytes: u64,
    /// Seconds of the work.
    pub copy_seconds: f64,
    /// Contents that differed from the stored or noted ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_reused: Option<String>,
}
