//! How the bulk of a container's memory is moved.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::thread;

use serde::Deserialize;

/// More threads than this were not tried (32 cores; docs/benchmarks.md).
const MOST_THREADS: usize = 32;
/// How many threads wait for the disk while others use the cores: with fewer, disk and cores wait for each other by turns
/// (measured, docs/benchmarks.md).
const WAITING: usize = 6;
const MOST_MINIMUM_MIB: u64 = 1 << 20;

/// `[bulk_memory]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BulkMemory {
    /// Whether our CRIU plugin moves it; if not, CRIU does, with one thread.
    pub enabled: bool,
    /// Of which containers.
    pub containers: Containers,
    /// Where it is kept.
    pub tier: MemoryTier,
    /// Where it is kept on disk, unless it is in the image.
    pub directory: PathBuf,
    /// How many threads move it; 0: as many as there are cores for us, some more for a disk.
    pub threads: usize,
    /// zstd's level; 0: it is stored as it is.
    pub compression_level: i32,
    /// Areas with less in them are left to CRIU, MiB.
    pub minimum_mib: u64,
    /// How much of the machine's memory it may take in the tier `ram`, percent.
    pub ram_limit_percent: u8,
    /// The plugin.
    pub plugin: PathBuf,
}

/// Whose bulk memory is moved by us.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Containers {
    /// Of containers that have been given a GPU.
    #[default]
    Gpu,
    /// Of all.
    All,
}

/// Where bulk memory is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemoryTier {
    /// In the image directory.
    #[default]
    Portable,
    /// In a directory of its own.
    Disk,
    /// In the machine's memory first, and then in that directory.
    Ram,
}

impl BulkMemory {
    /// How many threads move it here, to or from this tier.
    #[must_use]
    pub fn threads_for(&self, tier: MemoryTier) -> usize {
        // It counts what scheduler and cgroup leave to us.
        let cores = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let automatic = || match tier {
            MemoryTier::Disk => cores() + WAITING,
            MemoryTier::Portable | MemoryTier::Ram => cores(),
        };
        match self.threads {
            0 => automatic().min(MOST_THREADS),
            threads => threads,
        }
    }

    pub(crate) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        if self.threads > 64 {
            return Err((
                "bulk_memory.threads",
                "must be between 1 and 64, or 0 for automatic",
            ));
        }
        if !(0..=19).contains(&self.compression_level) {
            return Err((
                "bulk_memory.compression_level",
                "must be between 1 and 19, or 0 for none",
            ));
        }
        if !(1..=MOST_MINIMUM_MIB).contains(&self.minimum_mib) {
            return Err(("bulk_memory.minimum_mib", "must be between 1 and 1048576"));
        }
        if !(1..=90).contains(&self.ram_limit_percent) {
            return Err(("bulk_memory.ram_limit_percent", "must be between 1 and 90"));
        }
        Ok(())
    }
}

impl Default for BulkMemory {
    fn default() -> Self {
        Self {
            enabled: true,
            containers: Containers::default(),
            tier: MemoryTier::default(),
            directory: "/var/lib/stasis/memory".into(),
            threads: 0,
            compression_level: 0,
            minimum_mib: 16,
            ram_limit_percent: 50,
            plugin: "/usr/local/lib/stasis/libstasis_memory.so".into(),
        }
    }
}
