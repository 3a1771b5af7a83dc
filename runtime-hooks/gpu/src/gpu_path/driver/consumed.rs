//! Frees the memory of contents that the driver has taken from their file.
//!
//! The memory is charged to us, and to no cgroup of the container (`stasis_linux::memory_file`).
//! The kernel frees it with the last mapping and the last descriptor of the file, and a process may
//! have kept one: it would have as much memory as there is on its GPUs, outside of its limit. So
//! the file is cut to nothing, and a process that uses a kept mapping gets SIGBUS.

use std::fs::File;
use std::io;

use stasis_host::deadline::{PROC, within};
use stasis_injection::own_files_of;
use stasis_linux::ProcessRef;

use super::CopyingDriver;
use crate::cuda::CudaState;

impl CopyingDriver {
    /// Opens the files of a process that the driver is about to restore, but for packs: those
    /// belong to images.
    pub(super) fn own_files(&self, process: &ProcessRef) -> Vec<File> {
        let looked_at = process.clone();
        let found = || within(PROC, move || own_files_of(&looked_at))?;
        found().unwrap_or_else(|error: io::Error| {
            self.note_kept(process, &error);
            Vec::new()
        })
    }

    /// Frees the files of a process whose restore has succeeded. They may be the only contents
    /// until the driver also reports that the process is no longer checkpointed.
    pub(super) fn are_consumed(&self, process: &ProcessRef, own_files: &[File]) {
        if own_files.is_empty() || self.driver.state(process) != Ok(CudaState::Locked) {
            return;
        }
        let cut = own_files.iter().try_for_each(|file| file.set_len(0));
        if let Err(error) = cut {
            self.note_kept(process, &error);
        }
    }

    fn note_kept(&self, process: &ProcessRef, error: &io::Error) {
        let note = format!(
            "the memory that had the GPU contents of {process} is free only once nobody has kept \
             it: {error}"
        );
        self.state().copying.notes.push(note);
    }
}
