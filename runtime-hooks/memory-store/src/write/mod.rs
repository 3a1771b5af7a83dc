//! Stores the memory of a checkpoint: a [`Writer`] makes the store, and each thread puts chunks
//! into a pack of its own by a [`stream`]. Contents in [`files`] in memory are stored as a whole,
//! and stay where they are if their file is a pack already ([`in_place`], [`new_pack`]). Their
//! checksums may have been taken before ([`early_checksums`]).
//!
//! Contents that are stored already are referred to and not stored again.

pub(crate) mod early_checksums;
pub(crate) mod files;
mod in_place;
pub(crate) mod new_pack;
pub(crate) mod stream;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stasis_linux::file::{self, Access, Durability};

use self::stream::Stream;
use crate::directory::{self, clear, clear_packs, remove};
use crate::index::limits;
use crate::pack::PackFile;
use crate::pack::writer::PackWriter;
use crate::{
    Checksum, ChunkLocation, DumpRequest, INDEX_FILE, ImageId, Index, Pack, PacksIn, ProcessMemory,
    STORE_INDEX_FILE, StoreError,
};

type Clear = fn(&Path) -> Result<(), StoreError>;

/// The store of a checkpoint that is being made. Dropped before it is finished, it removes its
/// files.
#[derive(Debug)]
pub struct Writer {
    image_dir: PathBuf,
    image_id: ImageId,
    packs_in: PacksIn,
    /// Where the packs lie.
    directory: PathBuf,
    level: Option<i32>,
    /// Removes the files of this memory alone from the image directory.
    clear: Clear,
    state: Mutex<WriterState>,
    finished: bool,
}

#[derive(Debug, Default)]
struct WriterState {
    packs: Vec<HeldPack>,
    streams: u16,
    /// The place of contents, by their checksum and length.
    known: HashMap<(Checksum, usize), ChunkLocation>,
    not_reused: Option<String>,
}

#[derive(Debug)]
struct HeldPack {
    pack: Pack,
    file: Arc<PackFile>,
    closed: bool,
}

impl Writer {
    /// Makes the directory for packs, if there is to be one, and removes the files that an earlier
    /// dump left in the image directory.
    pub fn create(image_dir: &Path, request: &DumpRequest) -> Result<Self, StoreError> {
        Self::begin(image_dir, request, |image_dir| clear(image_dir, INDEX_FILE))
    }

    /// Does the same for memory of an image that another store has: the image keeps that store's
    /// index until [`Self::finish`] replaces it.
    pub fn replace(image_dir: &Path, request: &DumpRequest) -> Result<Self, StoreError> {
        Self::begin(image_dir, request, clear_packs)
    }

    fn begin(image_dir: &Path, request: &DumpRequest, clear: Clear) -> Result<Self, StoreError> {
        clear(image_dir)?;
        let directory = match &request.directory {
            None => image_dir,
            Some(directory) => {
                directory::make(directory)?;
                directory
            }
        };
        Ok(Self {
            image_dir: image_dir.to_owned(),
            image_id: request.image_id,
            packs_in: request.packs_in(),
            directory: directory.to_owned(),
            level: request.level,
            clear,
            state: Mutex::default(),
            finished: false,
        })
    }

    /// Contents that differed from the stored or noted ones; for the report.
    pub fn not_reused(&self) -> Option<String> {
        self.state().not_reused.clone()
    }

    /// Makes a stream for one thread.
    pub(crate) fn stream(&self) -> Result<Stream<'_>, StoreError> {
        Stream::new(self)
    }

    /// Reads the contents stored so far, by the places that [`Stream::put`] returned; also after
    /// [`Self::finish`], even if that failed.
    #[cfg(test)]
    pub(crate) fn reader(&self) -> crate::Reader {
        let state = self.state();
        crate::Reader::of(state.packs.iter().map(|held| held.file.clone()).collect())
    }

    /// Writes the index. All streams must be closed. The index is not durable yet: tasks stand
    /// still, and the caller of the dump brings the whole image to disk when they go on.
    ///
    /// # Errors
    /// [`StoreError`]; all stored contents can still be read.
    pub fn finish(&mut self, processes: &[ProcessMemory]) -> Result<Index, StoreError> {
        let index = self.index(processes)?;
        limits::check(&index).map_err(|what| StoreError::Impossible { what })?;
        let bytes = index.encode();
        let fits = file::check_size(bytes.len() as u64, limits::INDEX_BYTES);
        fits.map_err(|error| StoreError::Impossible {
            what: format!("its index cannot be read again: {error}"),
        })?;
        if self.packs_in == PacksIn::Directory {
            write_index(&self.directory.join(STORE_INDEX_FILE), &bytes)?;
        }
        write_index(&self.image_dir.join(INDEX_FILE), &bytes)?;
        self.finished = true;
        Ok(index)
    }

    fn index(&self, processes: &[ProcessMemory]) -> Result<Index, StoreError> {
        let state = self.state();
        if let Some(open) = state.packs.iter().find(|held| !held.closed) {
            let what = format!("{} is still being written", open.pack.file_name());
            return Err(StoreError::Impossible { what });
        }
        Ok(Index {
            image_id: self.image_id,
            packs_in: self.packs_in,
            packs: state.packs.iter().map(|held| held.pack).collect(),
            processes: processes.to_vec(),
        })
    }

    pub(crate) fn level(&self) -> Option<i32> {
        self.level
    }

    /// Returns the place of contents that may be the same, and their pack.
    pub(crate) fn known(&self, key: (Checksum, usize)) -> Option<(ChunkLocation, Arc<PackFile>)> {
        let state = self.state();
        let place = *state.known.get(&key)?;
        let pack = state.packs.get(usize::try_from(place.pack).ok()?)?;
        Some((place, pack.file.clone()))
    }

    /// Notes that stored contents differ from the expected ones.
    pub(crate) fn distrust(&self, pack: &Path, offset: u64, what: &str) {
        self.state().not_reused.get_or_insert_with(|| {
            let pack = pack.display();
            format!("{pack} is damaged at {offset}, or holds other contents by chance: {what}")
        });
    }

    pub(crate) fn remember(&self, key: (Checksum, usize), place: ChunkLocation) {
        self.state().known.insert(key, place);
    }

    /// Adds a pack, and returns its number.
    pub(crate) fn add_pack(&self) -> Result<(u32, PackWriter), StoreError> {
        let mut state = self.state();
        let mut pack = Pack::new(self.image_id, state.streams);
        // Contents that are still to come have packs as well.
        while self.directory.join(pack.file_name()).exists() && pack.stream < u16::MAX {
            pack.stream += 1;
        }
        let writer = PackWriter::create(&self.directory, &pack, self.packs_in)?;
        state.streams = pack.stream.saturating_add(1);
        let number = u32::try_from(state.packs.len()).unwrap_or(u32::MAX);
        state.packs.push(HeldPack {
            pack,
            file: writer.pack_file().clone(),
            closed: false,
        });
        Ok((number, writer))
    }

    pub(crate) fn close_pack(&self, number: u32, bytes: u64) {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        if let Some(held) = self.state().packs.get_mut(number) {
            held.pack.bytes = bytes;
            held.closed = true;
        }
    }

    fn state(&self) -> MutexGuard<'_, WriterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let _ = (self.clear)(&self.image_dir);
        if self.packs_in == PacksIn::Directory {
            let _ = remove(&self.directory);
        }
    }
}

fn write_index(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    file::replace(path, bytes, Access::Private, Durability::Volatile)
        .map_err(StoreError::writing(path))
}

#[cfg(test)]
mod tests;
