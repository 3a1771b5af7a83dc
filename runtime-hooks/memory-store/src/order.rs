//! What the engine tells the plugin before CRIU starts, and what it is told back. JSON files in the operation's directory.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ImageId;

/// The environment variable that names the file with the order.
pub const ORDER_VARIABLE: &str = "STASIS_MEMORY_ORDER";

/// Where packs lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// In the image directory, so that an image that is copied carries everything.
    Portable,
    /// In a directory of their own on a disk, past the page cache.
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

/// For a dump.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DumpOrder {
    /// The name of what is stored.
    pub image_id: ImageId,
    /// Where packs lie.
    pub tier: Tier,
    /// Their directory, which does not exist yet; of [`Tier::Disk`] and [`Tier::Ram`] only.
    pub directory: Option<PathBuf>,
    /// The directory of an earlier checkpoint of the same container, whose chunks can be used again.
    pub earlier: Option<PathBuf>,
    /// How many threads work at most.
    pub threads: usize,
    /// None: contents are stored as they are.
    pub compression: Option<Compression>,
    /// What becomes of the tasks.
    pub after: After,
    /// Areas with less in them are left to CRIU, MiB.
    pub minimum_mib: u64,
    /// A file to say in how far it has come: "BYTES TOTAL\n" in decimal, replaced by writing at its start.
    pub progress: Option<PathBuf>,
    /// A file for the [`Report`].
    pub report: Option<PathBuf>,
}

/// For a restore.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreOrder {
    /// The name that the manifest has.
    pub image_id: ImageId,
    /// The directory of the packs, unless they are in the image directory.
    pub directory: Option<PathBuf>,
    /// How many threads work at most.
    pub threads: usize,
    /// As in [`DumpOrder`].
    pub progress: Option<PathBuf>,
    /// As in [`DumpOrder`].
    pub report: Option<PathBuf>,
}

/// How it went.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Processes whose memory was taken, or given back.
    pub processes: usize,
    /// Their areas.
    pub areas: usize,
    /// Memory that was looked at.
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
    /// Why memory was left to CRIU, if it was.
    pub left_to_criu: Vec<String>,
    /// What failed.
    pub error: Option<String>,
    /// Why tasks could not be given back what had been taken of them. They wait for it.
    #[serde(default)]
    pub not_returned: Option<String>,
}
