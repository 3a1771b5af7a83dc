//! Packs of an earlier checkpoint of the same container, which are used again.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::pack::PackFile;
use crate::write::content_index::ContentIndex;
use crate::{INDEX_FILE, Index, Pack, Place, STORE_INDEX_FILE, StoreError};

/// Each is an open file, and one more for the next checkpoint.
const MOST_PACKS: usize = 256;
/// A pack of which less than one part in this many is used is not linked: it would keep the rest on
/// the disk.
const USED: u64 = 4;

/// Packs that were linked into a new directory, and their contents.
#[derive(Debug, Default)]
pub(crate) struct ReusedPacks {
    pub(crate) packs: Vec<(Pack, PackFile)>,
    /// Places number `packs`.
    pub(crate) known: ContentIndex,
}

impl ReusedPacks {
    /// Links the packs of a directory into another one.
    pub(crate) fn link(from: &Path, into: &Path) -> Result<Self, StoreError> {
        let index = match Index::read_file(&from.join(STORE_INDEX_FILE))? {
            Some(index) => index,
            None => {
                let path = from.join(INDEX_FILE);
                Index::read_file(&path)?.ok_or(StoreError::Missing { path })?
            }
        };
        let mut earlier = Self::default();
        let mut numbers = HashMap::new();
        for number in worthwhile(&index) {
            let pack = index.packs[number];
            let file = match link(&pack, from, into) {
                Ok(file) => file,
                Err(error) => {
                    earlier.unlink(into);
                    return Err(error);
                }
            };
            numbers.insert(number, earlier.packs.len());
            earlier.packs.push((pack, file));
        }
        earlier.learn(&index, &numbers);
        Ok(earlier)
    }

    fn learn(&mut self, index: &Index, numbers: &HashMap<usize, usize>) {
        for chunk in index.areas().flat_map(|area| &area.chunks) {
            let number = usize::try_from(chunk.place.pack).ok();
            let Some(new) = number.and_then(|number| numbers.get(&number)) else {
                continue;
            };
            let place = Place {
                pack: u32::try_from(*new).unwrap_or(u32::MAX),
                ..chunk.place
            };
            let key = (chunk.checksum, chunk.pages.bytes());
            self.known.insert(key, place);
        }
    }

    fn unlink(&self, directory: &Path) {
        for (pack, _) in &self.packs {
            let _ = fs::remove_file(directory.join(pack.file_name()));
        }
    }
}

/// The numbers of the packs that are used enough, those first that are used most.
fn worthwhile(index: &Index) -> Vec<usize> {
    let mut used: Vec<_> = (0..).zip(index.packs.iter().map(|_| 0_u64)).collect();
    let mut counted = HashSet::new();
    for chunk in index.areas().flat_map(|area| &area.chunks) {
        let Place {
            pack,
            offset,
            bytes,
            ..
        } = chunk.place;
        let number = usize::try_from(pack).unwrap_or(usize::MAX);
        if let Some((_, sum)) = used.get_mut(number)
            && counted.insert((pack, offset))
        {
            *sum += u64::from(bytes);
        }
    }
    used.retain(|(number, bytes)| *bytes >= index.packs[*number].bytes / USED && *bytes > 0);
    used.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    used.truncate(MOST_PACKS);
    used.into_iter().map(|(number, _)| number).collect()
}

/// First the link, then the checks: what was checked is what is linked.
fn link(pack: &Pack, from: &Path, into: &Path) -> Result<PackFile, StoreError> {
    let (old, new): (PathBuf, PathBuf) = (from.join(pack.file_name()), into.join(pack.file_name()));
    fs::hard_link(&old, &new).map_err(StoreError::io("link", &old))?;
    let file = PackFile::open(into, pack).inspect_err(|_| {
        let _ = fs::remove_file(&new);
    })?;
    // What is used of it is read and compared.
    file.read_directly_if_cold();
    Ok(file)
}

#[cfg(test)]
mod tests;
