//! Reads chunks; [`files`] loads them into files in memory, unless they are [`in_place`].

mod files;
mod in_place;
mod past_cache;
pub(crate) mod progress;

pub use past_cache::verify_past_cache;

use std::io;
use std::path::Path;
use std::sync::Arc;

use twox_hash::XxHash3_128;

use crate::arriving::{Arrived, Arriving};
use crate::pack::{PackFile, padded};
use crate::{
    Area, Buffer, Checksum, Chunk, ChunkLocation, Encoding, Index, PacksIn, ProcessMemory, Run,
    StoreError,
};

/// The packs of a checkpoint, for any number of threads.
#[derive(Debug)]
pub struct Reader {
    /// The packs, as places number them.
    packs: Vec<Arc<PackFile>>,
    /// Set if not all of the packs have arrived: their readers wait.
    arriving: Option<Arriving>,
}

impl Reader {
    /// Opens all packs of an index, in the image or in this directory. The packs of an image that
    /// arrives may be shorter.
    ///
    /// # Errors
    /// [`StoreError`]: a pack is missing, is another one, or is shorter than the index needs, and
    /// no process fetches the rest ([`StoreError::CutOff`]).
    pub fn open(
        image_dir: &Path,
        index: &Index,
        directory: Option<&Path>,
    ) -> Result<Self, StoreError> {
        let directory = match (index.packs_in, directory) {
            (PacksIn::Image, _) => image_dir,
            (_, Some(directory)) => directory,
            (_, None) => {
                let image = image_dir.to_owned();
                return Err(StoreError::NoDirectory { image });
            }
        };
        let arriving = arriving(image_dir, index.packs_in)?;
        let open = |(number, pack)| {
            let file = match &arriving {
                Some(_) => PackFile::open_growing(directory, pack),
                None => PackFile::open(directory, pack),
            };
            let mut file = file.map_err(|problem| needed(index, number, problem))?;
            if arriving.is_none() {
                file.read_fast(index.packs_in);
            }
            Ok(Arc::new(file))
        };
        let packs: Result<_, StoreError> = (0..).zip(&index.packs).map(open).collect();
        Ok(Self {
            packs: packs?,
            arriving,
        })
    }

    /// Opens all packs of an index in a store directory, to be read from the disk: past the page
    /// cache, if their file system can do that.
    pub(crate) fn open_past_cache(index: &Index, directory: &Path) -> Result<Self, StoreError> {
        let reader = Self::open(directory, index, Some(directory))?;
        reader.packs.iter().for_each(|pack| pack.read_directly());
        Ok(reader)
    }

    pub(crate) fn of(packs: Vec<Arc<PackFile>>) -> Self {
        let arriving = None;
        Self { packs, arriving }
    }

    /// Waits until the fetching process reports that all has arrived and matches its digests:
    /// checksums find damage and no forgery.
    pub fn until_whole(&self) -> Result<(), StoreError> {
        match &self.arriving {
            Some(arriving) => arriving.until_whole(|| false),
            None => Ok(()),
        }
    }

    /// Reads the stored pages of a chunk into the buffer, or finds them in a mapped pack. The
    /// process and the address of the area are for messages.
    ///
    /// # Errors
    /// [`StoreError::Chunk`]: they are damaged; [`StoreError::Io`]: they cannot be read now.
    pub fn load<'b>(
        &'b self,
        process: i32,
        area: u64,
        chunk: &'b Chunk,
        buffer: &'b mut Buffer,
    ) -> Result<Loaded<'b>, StoreError> {
        let number = usize::try_from(chunk.place.pack).unwrap_or(usize::MAX);
        let pack = self.packs.get(number);
        let origin = Origin {
            path: pack.map_or(Path::new(""), |pack| &pack.path),
            process,
            area,
            chunk,
        };
        if let (Some(arriving), Some(pack)) = (&self.arriving, pack) {
            arriving.until(&pack.file, chunk.place.end())?;
        }
        let Some(pack) = pack else {
            return Err(origin.damaged("its pack is not known".to_owned()));
        };
        match load(pack, chunk.place, chunk.pages.bytes(), buffer) {
            Ok(content) => Ok(Loaded { content, origin }),
            Err(error) if is_damage(&error) => Err(origin.damaged(error.to_string())),
            Err(error) => Err(StoreError::io("read", &pack.path)(error)),
        }
    }
}

/// The stored pages of a chunk, one after the other, that have not been verified.
#[derive(Debug)]
pub struct Loaded<'b> {
    content: &'b [u8],
    origin: Origin<'b>,
}

/// Where contents belong, for messages.
#[derive(Debug)]
struct Origin<'b> {
    path: &'b Path,
    process: i32,
    area: u64,
    chunk: &'b Chunk,
}

impl<'b> Loaded<'b> {
    /// Returns all of them, after their checksum was compared.
    pub fn verified(self) -> Result<&'b [u8], StoreError> {
        self.origin.verify(Checksum::of(self.content))?;
        Ok(self.content)
    }

    /// Passes the pages to `take` in parts of this many bytes, with their places in the chunk. Each
    /// part is passed on while it is still in the cache after it was hashed, so they are verified
    /// only when this succeeds.
    pub fn hand_on<E: From<StoreError>>(
        self,
        bytes: usize,
        mut take: impl FnMut(&'b [u8], &[Run]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut sum = XxHash3_128::new();
        let places = self.origin.chunk.pages.runs_in_parts(bytes);
        for (part, runs) in self.content.chunks(bytes).zip(places) {
            sum.write(part);
            take(part, &runs)?;
        }
        Ok(self.origin.verify(Checksum(sum.finish_128()))?)
    }
}

impl Origin<'_> {
    fn verify(&self, found: Checksum) -> Result<(), StoreError> {
        if found == self.chunk.checksum {
            return Ok(());
        }
        Err(self
            .damaged("its contents do not match their checksum, so they are damaged".to_owned()))
    }

    fn damaged(&self, what: String) -> StoreError {
        StoreError::Chunk {
            path: self.path.to_owned(),
            process: self.process,
            area: self.area,
            chunk: self.chunk.number,
            offset: self.chunk.place.offset,
            what,
        }
    }
}

/// Whether the packs in an image are still fetched.
fn arriving(image_dir: &Path, packs_in: PacksIn) -> Result<Option<Arriving>, StoreError> {
    let found = match packs_in {
        PacksIn::Image => Arriving::find(image_dir)?,
        PacksIn::Directory => None,
    };
    let Some(arriving) = found else {
        return Ok(None);
    };
    match arriving.arrived()? {
        Arrived::Whole => Ok(None),
        Arrived::UnderWay => Ok(Some(arriving)),
        Arrived::CutOff(why) => Err(arriving.cut_off(why)),
    }
}

/// Adds to an error which chunk needs the pack.
fn needed(index: &Index, number: u32, problem: StoreError) -> StoreError {
    let in_area = |area: &Area| {
        let mut chunks = area.chunks.iter();
        let chunk = chunks.find(|chunk| chunk.place.pack == number)?;
        Some((area.start, chunk.number))
    };
    let in_process = |process: &ProcessMemory| {
        let found = process.areas.iter().find_map(in_area)?;
        Some((process.pid, found))
    };
    match index.processes.iter().find_map(in_process) {
        Some((process, (area, chunk))) => StoreError::Needed {
            problem: Box::new(problem),
            process,
            area,
            chunk,
        },
        None => problem,
    }
}

/// Whether what was read cannot be right; else it could not be read, and may be right.
pub(crate) fn is_damage(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::InvalidData, io::ErrorKind::UnexpectedEof];
    kinds.contains(&error.kind())
}

/// Reads `bytes` of contents at a place, which are not verified. [`is_damage`]: they are not there.
pub(crate) fn load<'b>(
    pack: &'b PackFile,
    place: ChunkLocation,
    bytes: usize,
    buffer: &'b mut Buffer,
) -> io::Result<&'b [u8]> {
    let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let (stored, offset) = (place.bytes as usize, place.offset);
    let too_long = || invalid(format!("{stored} bytes cannot be those of {bytes}"));
    match place.encoding {
        Encoding::Raw if stored != bytes => Err(too_long()),
        Encoding::Raw => match pack.mapped(offset, bytes) {
            Some(content) => Ok(content),
            None => {
                let content = buffer.as_mut_slice().get_mut(..bytes);
                let content = content.ok_or_else(too_long)?;
                fill(pack, offset, content)?;
                Ok(content)
            }
        },
        Encoding::Zstd => {
            let (content, compressed) = buffer.with_compressed();
            let content = content.get_mut(..bytes).ok_or_else(too_long)?;
            let compressed = compressed.get_mut(..padded(stored)).ok_or_else(too_long)?;
            fill(pack, offset, compressed)?;
            let length = zstd::bulk::decompress_to_buffer(&compressed[..stored], content)
                .map_err(|error| invalid(format!("it cannot be decompressed ({error})")))?;
            if length != bytes {
                let what = format!("{length} bytes are there and {bytes} are needed");
                return Err(invalid(what));
            }
            Ok(content)
        }
    }
}

/// Reads all of `into`. [`is_damage`]: the file ends before.
pub(crate) fn fill(pack: &PackFile, offset: u64, into: &mut [u8]) -> io::Result<()> {
    let read = pack.read_at(offset, into)?;
    if read < into.len() {
        let what = format!(
            "the file ends at {}, in the middle of it",
            offset + read as u64
        );
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
