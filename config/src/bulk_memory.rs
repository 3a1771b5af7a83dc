//! Settings of bulk memory: where and how it is stored.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::{env, thread};

use serde::{Deserialize, Serialize};

/// More threads than this were not tried (32 cores; docs/benchmarks.md).
const MOST_THREADS: usize = 32;
/// Extra threads that wait for the disk while others use the cores: with fewer, disk and cores wait
/// for each other in turn (measured, docs/benchmarks.md).
const WAITING: usize = 6;

/// `[bulk_memory]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BulkMemory {
    /// Where bulk memory is stored.
    pub tier: MemoryTier,
    /// The directory for the tiers `disk` and `ram`.
    pub directory: PathBuf,
    /// The number of threads; 0: one a core that stasis may use, and some more for a disk.
    pub threads: usize,
    /// zstd's level; 0: no compression.
    pub compression_level: i32,
    /// The share of the machine's memory for the tier `ram`, in percent.
    pub ram_limit_percent: u8,
    /// How many checkpoints of a container are kept apart from images; 0: all.
    pub keep: usize,
    /// What all of them may take on disk, in bytes; 0: any amount.
    pub max_bytes: u64,
    /// The plugin.
    pub plugin: PathBuf,
}

/// Where bulk memory is stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemoryTier {
    /// In the image directory.
    #[default]
    Portable,
    /// In a directory of its own.
    Disk,
    /// In the machine's memory first, then in that directory.
    Ram,
}

impl BulkMemory {
    /// The number of threads on this machine for this tier.
    #[must_use]
    pub fn threads_for(&self, tier: MemoryTier) -> usize {
        // Respects the CPU affinity and the cgroup's quota.
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
        if !(1..=90).contains(&self.ram_limit_percent) {
            return Err(("bulk_memory.ram_limit_percent", "must be between 1 and 90"));
        }
        Ok(())
    }
}

impl Default for BulkMemory {
    fn default() -> Self {
        Self {
            tier: MemoryTier::default(),
            directory: "/var/lib/stasis/memory".into(),
            threads: 0,
            compression_level: 0,
            ram_limit_percent: 50,
            keep: 0,
            max_bytes: 0,
            plugin: installed_plugin(),
        }
    }
}

/// The plugin that was installed with this program: `PREFIX/lib/stasis` for one in `PREFIX/bin`,
/// since a package installs to `/usr` and `make install` to `/usr/local`.
fn installed_plugin() -> PathBuf {
    let program = env::current_exe().ok();
    let prefix = program.as_deref().and_then(Path::parent);
    let prefix = prefix.filter(|directory| directory.ends_with("bin"));
    let prefix = prefix.and_then(Path::parent);
    let prefix = prefix.unwrap_or(Path::new("/usr/local"));
    prefix.join("lib/stasis/libstasis_memory.so")
}
