//! Changes to the memory of a checkpointed process that need no steps.

use std::io;
use std::num::NonZeroUsize;
use std::time::Duration;

use stasis_injection::{Span, contents_of, own_files_of};

use crate::cuda::process_set::initial_state::ProcessId;

/// Half of the engine's wait: after that it may have the GPU state restored.
const READABLE_WITHIN: Duration = Duration::from_secs(5);

/// Makes the contents of a process ordinary memory, on `threads` threads.
pub(super) fn make_private(process: ProcessId, threads: NonZeroUsize) -> io::Result<()> {
    let Some(process) = process.open()? else {
        return Ok(());
    };
    let files = own_files_of(&process)?;
    for contents in contents_of(&process)? {
        let made = stasis_injection::make_private(&process, contents, threads);
        made.map_err(io::Error::other)?;
    }
    // No process has contents from there any more.
    files.iter().try_for_each(|file| file.set_len(0))
}

/// Makes addresses readable at which devices were mapped.
pub(super) fn make_readable(process: ProcessId, devices: &[Span]) -> io::Result<()> {
    match process.open()? {
        Some(process) => stasis_injection::make_readable(&process, devices, READABLE_WITHIN),
        None => Ok(()),
    }
}
