//! Storing the memory of a checkpoint.

use std::collections::{HashMap, HashSet};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::directory::{clear, remove};
use crate::earlier::Earlier;
use crate::error::describe;
use crate::pack::PackFile;
use crate::pack_writer::PackWriter;
use crate::{
    Checksum, DumpOrder, INDEX_FILE, ImageId, Index, Lane, Pack, Place, ProcessMemory, Reader,
    STORE_INDEX_FILE, StoreError, Tier, durable, limits,
};

/// Where contents of a checksum and a length are.
pub(crate) type Known = HashMap<(Checksum, usize), Place>;

/// The store of a checkpoint that is being made. What it made is removed when it is dropped before it is finished.
#[derive(Debug)]
pub struct Writer {
    image_dir: PathBuf,
    image_id: ImageId,
    tier: Tier,
    /// Where the packs lie.
    directory: PathBuf,
    level: Option<i32>,
    note: Option<String>,
    state: Mutex<State>,
    finished: bool,
}

#[derive(Debug, Default)]
struct State {
    packs: Vec<HeldPack>,
    lanes: u16,
    known: Known,
}

#[derive(Debug)]
struct HeldPack {
    pack: Pack,
    file: Arc<PackFile>,
    closed: bool,
}

impl Writer {
    /// Begins: makes the directory of a tier that has one, and removes what a former dump left in the image directory.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn create(image_dir: &Path, order: &DumpOrder) -> Result<Self, StoreError> {
        clear(image_dir, INDEX_FILE)?;
        let directory = match (order.tier, &order.directory) {
            (Tier::Portable, _) => image_dir,
            (_, Some(directory)) => {
                let made = DirBuilder::new().mode(0o700).create(directory);
                made.map_err(StoreError::writing(directory))?;
                directory
            }
            (_, None) => {
                let what = "the order names no directory for its tier".to_owned();
                return Err(StoreError::Impossible { what });
            }
        };
        let mut writer = Self {
            image_dir: image_dir.to_owned(),
            image_id: order.image_id,
            tier: order.tier,
            directory: directory.to_owned(),
            level: order.compression.map(|compression| compression.level),
            note: None,
            state: Mutex::default(),
            finished: false,
        };
        if let Some(earlier) = &order.earlier {
            writer.learn(earlier);
        }
        Ok(writer)
    }

    /// Takes over what an earlier checkpoint has, if it can be had.
    fn learn(&mut self, directory: &Path) {
        let Earlier { packs, known } = match Earlier::link(directory, &self.directory) {
            Ok(earlier) => earlier,
            Err(error) => {
                let why = describe(&error);
                self.note = Some(format!("no earlier memory is used again: {why}"));
                return;
            }
        };
        let hold = |(pack, file)| HeldPack {
            pack,
            file: Arc::new(file),
            closed: true,
        };
        let mut state = self.state();
        state.packs = packs.into_iter().map(hold).collect();
        state.known = known;
    }

    /// Why nothing of the earlier checkpoint is used again, for the log.
    #[must_use]
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// For one thread.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn lane(&self) -> Result<Lane<'_>, StoreError> {
        Lane::new(self)
    }

    /// Of what has been put so far, with the places that [`Lane::put`] gave; works after [`Self::finish`], too, whether it failed
    /// or not.
    #[must_use]
    pub fn reader(&self) -> Reader {
        let state = self.state();
        Reader::of(state.packs.iter().map(|held| held.file.clone()).collect())
    }

    /// Writes the index, on disk when this returns. All lanes have been closed. Packs that nothing refers to are removed.
    ///
    /// # Errors
    /// [`StoreError`]; everything that was put can still be read.
    pub fn finish(&mut self, processes: &[ProcessMemory]) -> Result<Index, StoreError> {
        let (index, unused) = self.index(processes)?;
        limits::check(&index).map_err(|what| StoreError::Impossible { what })?;
        let bytes = index.encode();
        if bytes.len() as u64 > limits::INDEX_BYTES {
            let what = "its index is too large".to_owned();
            return Err(StoreError::Impossible { what });
        }
        for name in unused {
            durable::remove(&self.directory.join(name))?;
        }
        if self.tier != Tier::Portable {
            durable::write(&self.directory, STORE_INDEX_FILE, &bytes)?;
            durable::sync_directory(&self.directory)?;
            // So that the directory itself is there, too.
            if let Some(store) = self.directory.parent() {
                durable::sync_directory(store)?;
            }
        }
        durable::write(&self.image_dir, INDEX_FILE, &bytes)?;
        durable::sync_directory(&self.image_dir)?;
        self.finished = true;
        Ok(index)
    }

    /// The index of these processes, which numbers only packs that are used, and the names of the others.
    fn index(&self, processes: &[ProcessMemory]) -> Result<(Index, Vec<String>), StoreError> {
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
            tier: self.tier,
            packs,
            processes,
        };
        Ok((index, unused))
    }

    /// Removes every file that it made; what cannot be removed stays.
    pub fn abandon(mut self) {
        self.finished = false;
    }

    pub(crate) fn level(&self) -> Option<i32> {
        self.level
    }

    pub(crate) fn known(&self, key: (Checksum, usize)) -> Option<Place> {
        self.state().known.get(&key).copied()
    }

    pub(crate) fn remember(&self, key: (Checksum, usize), place: Place) {
        self.state().known.insert(key, place);
    }

    /// One more pack, with its number.
    pub(crate) fn add_pack(&self) -> Result<(u32, PackWriter), StoreError> {
        let mut state = self.state();
        let pack = Pack {
            creator: self.image_id,
            lane: state.lanes,
            bytes: 0,
        };
        let writer = PackWriter::create(&self.directory, &pack, self.tier)?;
        state.lanes = state.lanes.saturating_add(1);
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let _ = clear(&self.image_dir, INDEX_FILE);
        if self.tier != Tier::Portable {
            let _ = remove(&self.directory);
        }
    }
}

#[cfg(test)]
mod tests;
