//! Reads bulk memory as the disk has it, and compares it with its checksums.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use stasis_memory_store::{Buffer, Index, Reader};

use crate::error::chain;

/// What was read so far.
#[derive(Default)]
pub(crate) struct Scrub {
    buffer: Buffer,
    /// The places that were read and are whole: device, inode and offset.
    whole: HashSet<(u64, u64, u64)>,
}

/// What an index needs of its packs, bytes as they are stored: without pages that are zero, and
/// what several processes have is counted once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    /// All of it.
    pub(crate) needed: u64,
    /// What was read: the rest was read before, for another store that has the same packs.
    pub(crate) read: u64,
}

impl Scrub {
    /// Reads all that an index needs of the packs in a directory, and tells of what is damaged.
    /// What was read before, and is whole, is not read again.
    pub(crate) fn read(
        &mut self,
        index: &Index,
        directory: &Path,
        mut damaged: impl FnMut(String),
    ) -> Amount {
        let reader = match Reader::open_past_cache(index, directory) {
            Ok(reader) => reader,
            Err(error) => {
                damaged(chain(&error));
                return Amount::default();
            }
        };
        let inode = |name: String| fs::metadata(directory.join(name));
        let packs = index.packs.iter().map(|pack| inode(pack.file_name()));
        let packs: Vec<_> = packs
            .map(|pack| pack.map_or((0, 0), |pack| (pack.dev(), pack.ino())))
            .collect();
        let (mut amount, mut counted) = (Amount::default(), HashSet::new());
        for process in &index.processes {
            for area in &process.areas {
                for chunk in &area.chunks {
                    let pack = usize::try_from(chunk.place.pack).unwrap_or(usize::MAX);
                    let (device, inode) = packs.get(pack).copied().unwrap_or_default();
                    let place = (device, inode, chunk.place.offset);
                    let is_whole = self.whole.contains(&place);
                    if counted.insert(place) {
                        let bytes = u64::from(chunk.place.bytes);
                        amount.needed += bytes;
                        amount.read += if is_whole { 0 } else { bytes };
                    }
                    if is_whole {
                        continue;
                    }
                    let loaded = reader.load(process.pid, area.start, chunk, &mut self.buffer);
                    match loaded.and_then(|loaded| loaded.verified().map(drop)) {
                        Ok(()) => drop(self.whole.insert(place)),
                        Err(error) => damaged(chain(&error)),
                    }
                }
            }
        }
        amount
    }
}

#[cfg(test)]
pub(crate) mod tests;
