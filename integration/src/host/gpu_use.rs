//! The processes of a test host that use a GPU: they have its device nodes open.

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::host::installed::StasisHost;

impl StasisHost {
    /// Returns how many descriptors of the GPU's device nodes processes of the host hold.
    pub fn gpu_descriptors(&self) -> Result<usize> {
        Ok(self.gpu_descriptors_by_process()?.iter().sum())
    }

    /// Returns how many processes of the host have the GPU's device nodes open.
    pub fn gpu_processes(&self) -> Result<usize> {
        let counts = self.gpu_descriptors_by_process()?;
        Ok(counts.iter().filter(|count| **count > 0).count())
    }

    fn gpu_descriptors_by_process(&self) -> Result<Vec<usize>> {
        let mut counts = Vec::new();
        for process in fs::read_dir(self.path("/proc"))? {
            // Not every entry is a process, and processes end meanwhile.
            let Ok(descriptors) = fs::read_dir(process?.path().join("fd")) else {
                continue;
            };
            let targets = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
            let on_gpu = targets.filter(|target| target.starts_with("/dev") && is_gpu_node(target));
            counts.push(on_gpu.count());
        }
        Ok(counts)
    }
}

fn is_gpu_node(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with("nvidia"))
}
