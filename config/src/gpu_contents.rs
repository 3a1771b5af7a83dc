//! Settings of GPU contents: where and how images store them.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::{env, thread};

use serde::{Deserialize, Serialize};

/// More threads than this were not tried (32 cores).
const MOST_THREADS: usize = 32;
/// Extra threads that wait for the disk while others use the cores: with fewer, disk and cores wait
/// for each other in turn (measured).
const WAITING: usize = 6;

/// `[gpu_contents]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GpuContents {
    /// The directory of contents that lie apart from their images; empty: they lie in the image.
    pub directory: PathBuf,
    /// The number of threads; 0: one a core that stasis may use, and some more for a disk.
    pub threads: usize,
    /// zstd's level; 0: no compression.
    pub compression_level: i32,
    /// The share of the machine's memory for contents on their way to a disk, in percent.
    pub staging_percent: u8,
    /// The plugin.
    pub plugin: PathBuf,
}

impl GpuContents {
    /// The directory of contents apart from images, if there is to be one.
    pub fn directory(&self) -> Option<&Path> {
        let directory = self.directory.as_path();
        (!directory.as_os_str().is_empty()).then_some(directory)
    }

    /// The number of threads on this machine.
    pub fn threads(&self) -> usize {
        self.threads_and(0)
    }

    /// The same where they wait for a disk.
    pub fn threads_on_disk(&self) -> usize {
        self.threads_and(WAITING)
    }

    fn threads_and(&self, more: usize) -> usize {
        // Respects the CPU affinity and the cgroup's quota.
        let cores = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
        match self.threads {
            0 => (cores() + more).min(MOST_THREADS),
            threads => threads,
        }
    }

    pub(crate) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        if self.threads > 64 {
            return Err((
                "gpu_contents.threads",
                "must be between 1 and 64, or 0 for automatic",
            ));
        }
        if !(0..=19).contains(&self.compression_level) {
            return Err((
                "gpu_contents.compression_level",
                "must be between 1 and 19, or 0 for none",
            ));
        }
        if !(1..=90).contains(&self.staging_percent) {
            return Err(("gpu_contents.staging_percent", "must be between 1 and 90"));
        }
        Ok(())
    }
}

impl Default for GpuContents {
    fn default() -> Self {
        Self {
            directory: PathBuf::new(),
            threads: 0,
            compression_level: 0,
            staging_percent: 50,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_threads_is_taken_or_found() {
        let with = |threads| GpuContents {
            threads,
            ..GpuContents::default()
        };
        assert_eq!(with(3).threads_on_disk(), 3);
        let cores = with(0).threads();
        assert!((1..=32).contains(&cores));
        assert_eq!(with(0).threads_on_disk(), 32.min(cores + 6));
    }

    #[test]
    fn they_lie_in_the_image_unless_a_directory_is_named() {
        assert_eq!(GpuContents::default().directory(), None);
        let named = GpuContents {
            directory: "/dev/shm/stasis".into(),
            ..GpuContents::default()
        };
        assert_eq!(named.directory(), Some(Path::new("/dev/shm/stasis")));
    }
}
