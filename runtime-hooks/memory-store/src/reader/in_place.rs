//! Contents that lie in a pack as they lay in their process.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use crate::file_contents::FileContents;
use crate::pack::PackFile;
use crate::{Area, CHUNK, Chunk, Encoding, PAGE, Reader, StoreError, StoredPages};

impl Reader {
    /// Returns the file that can be mapped for an area, for reading alone, and the area's offset in
    /// it: a pack in memory that has all of it as it was. `None`: the area has to be loaded.
    pub fn in_place(&self, area: &Area) -> Option<(&File, u64)> {
        let (pack, offset) = self.pack_of(area)?;
        Some((&pack.file, offset))
    }

    /// Returns the same file, marked as one of ours: its receiver cannot open it for writing in any
    /// way.
    pub fn to_map(&self, area: &Area) -> Result<Option<(File, u64)>, StoreError> {
        let Some((pack, offset)) = self.pack_of(area) else {
            return Ok(None);
        };
        let file = pack.for_others();
        let file = file.map_err(StoreError::io("open", &pack.path))?;
        Ok(Some((file, offset)))
    }

    fn pack_of(&self, area: &Area) -> Option<(&PackFile, u64)> {
        let first = area.chunks.first()?.place;
        let pack = self.packs.get(usize::try_from(first.pack).ok()?)?;
        let whole = area.bytes.div_ceil(CHUNK as u64) == area.chunks.len() as u64;
        let mut chunks = (0..).zip(&area.chunks);
        let is_so = whole
            && is_in_memory(pack)
            && chunks.all(|(number, chunk)| {
                let offset = first.offset.checked_add(u64::from(number) * CHUNK as u64);
                let place = &chunk.place;
                chunk.number == number
                    && (place.pack, Some(place.offset)) == (first.pack, offset)
                    && has_all(area, chunk)
            });
        is_so.then_some((pack.as_ref(), first.offset))
    }

    pub(super) fn has_in_place(&self, contents: &FileContents<'_>, area: &Area) -> bool {
        let id = |file: &File| file.metadata().map(|file| (file.dev(), file.ino())).ok();
        self.in_place(area).is_some_and(|(file, offset)| {
            offset == contents.offset && id(file).is_some() && id(file) == id(contents.file)
        })
    }
}

fn is_in_memory(pack: &PackFile) -> bool {
    pack.mapped.is_some()
}

fn has_all(area: &Area, chunk: &Chunk) -> bool {
    let pages = area.chunk_bytes(chunk.number) / PAGE;
    chunk.place.encoding == Encoding::Raw
        && matches!(chunk.pages, StoredPages::All(all) if usize::from(all) == pages)
}
