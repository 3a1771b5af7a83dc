//! Reads stored contents from the disk, past the page cache, and compares their checksums.

use std::path::Path;

use stasis_engine::error::chain;
use stasis_memory_store::{Index, verify_past_cache};

/// Reads all that an index needs of the packs in a directory, and reports damage.
pub(super) fn read_all(index: &Index, packs: &Path, mut damaged: impl FnMut(String)) {
    verify_past_cache(index, packs, |error| damaged(chain(&error)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{START, flip_bit_of, store_holes};

    fn damage_of(index: &Index, packs: &Path) -> Vec<String> {
        let mut damage = Vec::new();
        read_all(index, packs, |one| damage.push(one));
        damage
    }

    #[test]
    fn each_damaged_chunk_of_a_hole_is_found_wherever_it_lies() {
        for (id, apart) in [(1, false), (2, true)] {
            let [image, store] = [0, 1].map(|_| tempfile::tempdir().unwrap());
            let directory = apart.then(|| store.path().join("store"));
            let index = store_holes(image.path(), directory.clone(), id);
            let packs = directory.as_deref().unwrap_or(image.path());
            assert_eq!(damage_of(&index, packs), [""; 0]);
            let mut found = 0;
            for chunk in index.areas().flat_map(|area| &area.chunks) {
                flip_bit_of(chunk, &index, packs);
                let damage = damage_of(&index, packs);
                let of = |pid| {
                    format!(
                        "chunk {} of the area at {START:#x} of process {pid} ",
                        chunk.number
                    )
                };
                assert!(damage[0].starts_with(&of(1)), "{damage:?}");
                // A chunk of two processes is damaged for both.
                if chunk.number == 0 {
                    assert!(damage[1].starts_with(&of(7)), "{damage:?}");
                }
                found += damage.len();
                flip_bit_of(chunk, &index, packs);
            }
            assert_eq!(found, 2 + 1 + 2);
        }
    }
}
