//! Descriptors that a started process inherits.

use std::fs;
use std::io;

/// The fate of inherited descriptors but the standard ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inherited {
    /// All are closed, since a reader may wait for their end.
    Closed,
    /// Files are kept, with locks on them, for as long as the process lives.
    LocksKept,
}

/// Closes them.
pub(super) fn close(inherited: Inherited) -> io::Result<()> {
    let mut open = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        let is_file = || fs::metadata(entry.path()).is_ok_and(|file| file.is_file());
        if inherited == Inherited::Closed || !is_file() {
            open.extend(entry.file_name().to_string_lossy().parse::<i32>());
        }
    }
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > 2) {
        // The descriptor of the directory itself is closed already.
        let _ = nix::unistd::close(descriptor);
    }
    Ok(())
}
