//! The libraries that a process has mapped.

use std::fs::File;
use std::ops::ControlFlow;

use stasis_linux::ProcessRef;
use stasis_linux::procfs::{Mapping, for_each_mapping, open_mapped};

use super::Refusal;

/// No honest process maps one library more often.
const MAX_LIBRARIES: usize = 64;

/// The beginning of a library in a process's memory.
#[derive(Debug)]
pub(super) struct Library {
    /// The name of its file, for messages and comparisons: the process can choose it.
    pub(super) name: Vec<u8>,
    /// Address of the beginning of the file.
    pub(super) start: u64,
    /// The mapped file, whatever is at its path now.
    pub(super) file: File,
}

/// The kind of mapping that an address is part of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Area {
    pub(super) is_writable: bool,
    /// False for memory that a program wrote code into.
    pub(super) is_code_of_a_file: bool,
}

/// Finds the libraries whose file name `is_wanted`, once for each time that they are mapped.
/// Opening them takes as long as their file system takes.
pub(super) fn libraries(
    process: &ProcessRef,
    is_wanted: impl Fn(&[u8]) -> bool,
) -> Result<Vec<Library>, Refusal> {
    let pid = process.pid();
    let mut found = Vec::new();
    let failed = for_each_mapping(pid, |mapping| {
        let name = mapping.path.rsplit(|byte| *byte == b'/').next();
        let Some(name) = name.filter(|name| is_library(&mapping) && is_wanted(name)) else {
            return ControlFlow::Continue(());
        };
        match open_mapped(pid, &mapping) {
            Ok(Some(file)) if found.len() < MAX_LIBRARIES => found.push(Library {
                name: name.to_owned(),
                start: mapping.start,
                file,
            }),
            Ok(_) => {}
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    })?;
    // Checked after all was opened, since the pid may have been given to another process before it:
    // no files of another process are read.
    if process.is_gone() {
        return Err(Refusal::Ended);
    }
    failed.map_or(Ok(found), |error| Err(error.into()))
}

/// Whether a mapping is the first of a library, which has the file's beginning.
fn is_library(mapping: &Mapping<'_>) -> bool {
    mapping.inode != 0 && mapping.offset == 0 && mapping.path.starts_with(b"/")
}

/// Returns the kind of mapping at an address; `None` if nothing is mapped there.
pub(super) fn area_at(pid: i32, address: u64) -> Result<Option<Area>, Refusal> {
    let found = for_each_mapping(pid, |mapping| {
        if !(mapping.start..mapping.end).contains(&address) {
            return ControlFlow::Continue(());
        }
        ControlFlow::Break(Area {
            is_writable: mapping.has(b'w'),
            is_code_of_a_file: mapping.has(b'x') && !mapping.has(b'w') && mapping.inode != 0,
        })
    })?;
    Ok(found)
}
