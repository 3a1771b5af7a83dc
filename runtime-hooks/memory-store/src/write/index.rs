//! The index of what a writer has stored.

use std::collections::{HashMap, HashSet};

use crate::{Index, ProcessMemory, StoreError, Writer};

impl Writer {
    /// The index of these processes, with the packs that they use, and the names of the other
    /// packs.
    pub(super) fn index(
        &self,
        processes: &[ProcessMemory],
    ) -> Result<(Index, Vec<String>), StoreError> {
        let mut processes = processes.to_vec();
        let areas = || processes.iter().flat_map(|process| &process.areas);
        let chunks = areas().flat_map(|area| &area.chunks);
        let used: HashSet<u32> = chunks.map(|chunk| chunk.place.pack).collect();
        let mut new_numbers = HashMap::new();
        let (mut packs, mut unused) = (Vec::new(), Vec::new());
        for (number, held) in (0..).zip(&self.state().packs) {
            if !held.closed {
                let what = format!("{} is still being written", held.pack.file_name());
                return Err(StoreError::Impossible { what });
            }
            if used.contains(&number) {
                new_numbers.insert(number, u32::try_from(packs.len()).unwrap_or(u32::MAX));
                packs.push(held.pack);
            } else {
                unused.push(held.pack.file_name());
            }
        }
        let areas = processes.iter_mut().flat_map(|process| &mut process.areas);
        for chunk in areas.flat_map(|area| &mut area.chunks) {
            let number = new_numbers.get(&chunk.place.pack);
            chunk.place.pack = number.copied().unwrap_or(u32::MAX);
        }
        let index = Index {
            image_id: self.image_id,
            packs_in: self.packs_in,
            packs,
            processes,
        };
        Ok((index, unused))
    }
}
