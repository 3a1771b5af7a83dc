//! Reads stored contents from the disk, past the page cache, and compares their checksums.

use std::fmt;
use std::path::Path;

use stasis_engine::error::chain;
use stasis_engine::error::io_kind::of_store;
use stasis_engine::error::kind::Kind;
use stasis_memory_store::{Index, verify_past_cache};

/// The places that a restore cannot use, all for a reason of one kind.
pub(super) struct Unusable {
    pub(super) kind: Kind,
    places: usize,
    first: String,
}

/// Reads all that an index needs of the packs in a directory.
pub(super) fn read_all(index: &Index, packs: &Path) -> Vec<Unusable> {
    let mut found: Vec<Unusable> = Vec::new();
    verify_past_cache(index, packs, |error| {
        let kind = of_store(&error);
        match found.iter_mut().find(|unusable| unusable.kind == kind) {
            Some(unusable) => unusable.places += 1,
            None => found.push(Unusable {
                kind,
                places: 1,
                first: chain(&error),
            }),
        }
    });
    found
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { places, first, .. } = self;
        let what = match self.kind {
            Kind::ImageDamaged => "are damaged",
            _ => "cannot be read",
        };
        write!(
            f,
            "its GPU contents {what} in {places} places; the first: {first}"
        )
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::fixtures::{START, flip_bit_of, store_holes};

    fn damage_of(index: &Index, packs: &Path) -> Vec<String> {
        let mut damage = Vec::new();
        verify_past_cache(index, packs, |error| damage.push(chain(&error)));
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

    #[test]
    fn a_pack_that_cannot_be_read_is_not_told_as_damaged() {
        let image = tempfile::tempdir().unwrap();
        let index = store_holes(image.path(), None, 1);
        let pack = image.path().join(index.packs[0].file_name());
        flip_bit_of(&index.processes[0].areas[0].chunks[0], &index, image.path());
        let told = || -> Vec<_> {
            let found = read_all(&index, image.path()).into_iter();
            found
                .map(|unusable| (unusable.kind, unusable.places))
                .collect()
        };
        assert_eq!(told(), [(Kind::ImageDamaged, 2)]);
        fs::remove_file(pack).unwrap();
        assert_eq!(told(), [(Kind::MemoryMissing, 1)]);
    }
}
