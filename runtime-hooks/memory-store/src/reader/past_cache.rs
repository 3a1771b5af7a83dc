//! Reads all contents from the disk, and compares them with their checksums.

use std::collections::HashSet;
use std::path::Path;

use super::Reader;
use crate::{Buffer, Index, StoreError};

/// Reads all that an index needs of the packs in a directory, past the page cache and one chunk at
/// a time, and reports each damaged chunk.
pub fn verify_past_cache(index: &Index, packs: &Path, mut damaged: impl FnMut(StoreError)) {
    let reader = match Reader::open_past_cache(index, packs) {
        Ok(reader) => reader,
        Err(error) => return damaged(error),
    };
    let (mut buffer, mut whole) = (Buffer::new(), HashSet::new());
    for process in &index.processes {
        for area in &process.areas {
            for chunk in &area.chunks {
                // Contents that several processes share are read once.
                let place = (chunk.place.pack, chunk.place.offset);
                if whole.contains(&place) {
                    continue;
                }
                let loaded = reader.load(process.pid, area.start, chunk, &mut buffer);
                match loaded.and_then(|loaded| loaded.verified().map(drop)) {
                    Ok(()) => drop(whole.insert(place)),
                    Err(error) => damaged(error),
                }
            }
        }
    }
}
