//! GPU contents of processes that are to be dumped, in files of ours.

use std::io;

use serde::{Deserialize, Serialize};
use stasis_injection::Span;
use stasis_linux::ProcessRef;

use crate::cuda::process_set::initial_state::ProcessId;
use crate::gpu_path::contents_in_time;

/// GPU contents of a process that is to be dumped, in a file of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct InFile {
    pub(super) process: ProcessId,
    /// Its pid in the container.
    pub(super) pid: i32,
    pub(super) contents: Span,
}

impl InFile {
    /// The length of the contents.
    pub(crate) fn bytes(&self) -> u64 {
        self.contents.length
    }
}

/// Finds the contents of these processes, each with its pid in the container, in files of ours.
///
/// # Errors
/// An error of reading `/proc`, also if that takes too long.
pub fn in_files(processes: &[(i32, ProcessRef)]) -> io::Result<Vec<InFile>> {
    let mut found = Vec::new();
    for (pid, process) in processes {
        let contents = contents_in_time(process)?.into_iter();
        found.extend(contents.map(|contents| InFile {
            process: ProcessId::of(process),
            pid: *pid,
            contents,
        }));
    }
    Ok(found)
}
