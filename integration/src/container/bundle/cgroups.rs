//! The cgroups of a bundle's container.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::Bundle;

/// Levels below `/sys/fs/cgroup`: a hierarchy, the container's parent there, and the container.
const LEVELS: usize = 3;

impl Bundle<'_> {
    /// Lists the processes that keep its cgroups busy. The process lists of version 2 leave out a
    /// process whose main thread has ended while others still free its memory; "populated" counts
    /// it (`css_task_iter_advance` in the kernel's cgroup.c).
    pub(super) fn left_in_cgroups(&self) -> Result<Option<String>> {
        let mut named = Vec::new();
        let top = self.stasis.path("/sys/fs/cgroup");
        self.cgroups_below(&top, LEVELS, &mut named)?;
        let mut left = String::new();
        for cgroup in named {
            let read = |file: &str| fs::read_to_string(cgroup.join(file)).unwrap_or_default();
            left += &read("cgroup.procs");
            let events = read("cgroup.events");
            left.extend(events.lines().filter(|line| *line == "populated 1"));
        }
        Ok((!left.is_empty()).then_some(left))
    }

    fn cgroups_below(
        &self,
        directory: &Path,
        levels: usize,
        named: &mut Vec<PathBuf>,
    ) -> io::Result<()> {
        let device = fs::metadata(directory)?.dev();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            // The directory may be gone by now.
            let Ok(found) = entry.metadata() else {
                continue;
            };
            if !found.is_dir() {
                continue;
            }
            // A hierarchy may have the container's name ("memory").
            let is_hierarchy = found.dev() != device;
            if entry.file_name() == *self.id && !is_hierarchy {
                named.push(entry.path());
            } else if levels > 1 {
                match self.cgroups_below(&entry.path(), levels - 1, named) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}
