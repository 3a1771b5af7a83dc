//! Contents whose file is a pack of the store already.

use std::num::NonZeroUsize;
use std::sync::Arc;

use stasis_linux::file;

use super::HeldPack;
use super::early_checksums::EarlyChecksums;
use crate::directory::entries;
use crate::file_contents::FileContents;
use crate::pack::PackFile;
use crate::{
    CHUNK, Checksum, Chunk, ChunkLocation, Encoding, PAGE, Pack, PacksIn, StoreError, StoredPages,
    Writer,
};

/// The place of contents that lie in a pack as they lie in their process.
#[derive(Debug)]
pub(super) struct InPlace {
    /// The writer's number of the pack.
    pack: u32,
    /// Offset of the first byte.
    offset: u64,
    /// Checksums that were taken before all contents were in the pack.
    early: EarlyChecksums,
}

impl InPlace {
    /// Makes a chunk with all of its pages, also those that are zero.
    pub(super) fn chunk(&self, number: u32, content: &[u8]) -> Chunk {
        let checksum = self.early.get(number);
        Chunk {
            number,
            pages: all_of(content),
            checksum: checksum.unwrap_or_else(|| Checksum::of(content)),
            place: ChunkLocation {
                pack: self.pack,
                offset: self.offset + u64::from(number) * CHUNK as u64,
                bytes: u32::try_from(content.len()).unwrap_or(u32::MAX),
                encoding: Encoding::Raw,
            },
        }
    }
}

/// All pages of a content, which is at most a chunk.
fn all_of(content: &[u8]) -> StoredPages {
    StoredPages::All(u16::try_from(content.len() / PAGE).unwrap_or(u16::MAX))
}

impl Writer {
    /// Finds the place of contents whose file is a pack of this store, with the checksums that were
    /// taken before, as far as these are right.
    pub(super) fn in_place(
        &self,
        contents: &FileContents<'_>,
        content: &[u8],
        threads: NonZeroUsize,
    ) -> Result<Option<InPlace>, StoreError> {
        if self.packs_in == PacksIn::Image {
            return Ok(None);
        }
        let length = contents.file.metadata();
        let length = length.map_err(contents.failed("look at"))?.len();
        for entry in entries(&self.directory)? {
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
                continue;
            };
            let own = Pack::of_name(&name, length);
            let Some(pack) = own.filter(|pack| pack.creator == self.image_id) else {
                continue;
            };
            if file::is_at(contents.file, &entry.path()) {
                let early = EarlyChecksums::of(&entry.path());
                return Ok(Some(InPlace {
                    pack: self.adopt(pack)?,
                    offset: contents.offset,
                    early: self.believed(early, content, threads)?,
                }));
            }
        }
        Ok(None)
    }

    /// Adds a pack, and returns its number. A process may have it mapped more than once.
    fn adopt(&self, pack: Pack) -> Result<u32, StoreError> {
        let file = PackFile::open(&self.directory, &pack)?;
        let mut state = self.state();
        let mut numbered = (0..).zip(&state.packs);
        if let Some((number, _)) = numbered.find(|(_, held)| held.pack == pack) {
            return Ok(number);
        }
        let number = u32::try_from(state.packs.len()).unwrap_or(u32::MAX);
        state.streams = state.streams.max(pack.stream.saturating_add(1));
        state.packs.push(HeldPack {
            pack,
            file: Arc::new(file),
            closed: true,
        });
        Ok(number)
    }
}
