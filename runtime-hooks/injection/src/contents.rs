//! Where the GPU contents of a checkpointed process are, if they are in a file of ours.

use std::io;
use std::ops::ControlFlow;

use stasis_linux::ProcessRef;
use stasis_linux::memory_file::NAME;
use stasis_linux::procfs::for_each_mapping;

use crate::record::Span;

/// The mappings of files of ours in a process, found by the name that the kernel shows for them:
/// nobody has to have recorded them. A process that maps a file of its own of that name deceives
/// itself alone: how it is copied is all that depends on this.
///
/// # Errors
/// An error of reading `/proc`.
pub fn contents_of(process: &ProcessRef) -> io::Result<Vec<Span>> {
    let name = format!("/{NAME} (deleted)").into_bytes();
    let mut found: Vec<Span> = Vec::new();
    for_each_mapping(process.pid(), |mapping| {
        if mapping.permissions == *b"rw-s" && mapping.path == name {
            let length = mapping.end - mapping.start;
            // The kernel may show one in pieces.
            match found.last_mut() {
                Some(last) if last.start + last.length == mapping.start => last.length += length,
                _ => found.push(Span {
                    start: mapping.start,
                    length,
                }),
            }
        }
        ControlFlow::<()>::Continue(())
    })?;
    Ok(found)
}
