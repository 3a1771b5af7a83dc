//! Reading chunks.

use std::path::Path;
use std::sync::Arc;

use crate::pack::PackFile;
use crate::pack_writer::padded;
use crate::{Area, Buffer, Checksum, Chunk, Encoding, Index, ProcessMemory, StoreError, Tier};

/// The packs of a checkpoint, for any number of threads.
#[derive(Debug)]
pub struct Reader {
    /// As places number them.
    packs: Vec<Arc<PackFile>>,
}

impl Reader {
    /// Opens all packs of an index, in the directory that the tier has them in.
    ///
    /// # Errors
    /// [`StoreError`]: one is not there, is another one, or is shorter than the index needs it to be.
    pub fn open(
        image_dir: &Path,
        index: &Index,
        directory: Option<&Path>,
    ) -> Result<Self, StoreError> {
        let directory = match (index.tier, directory) {
            (Tier::Portable, _) => image_dir,
            (_, Some(directory)) => directory,
            (_, None) => {
                let image = image_dir.to_owned();
                return Err(StoreError::NoDirectory { image });
            }
        };
        let open = |(number, pack)| {
            let file = PackFile::open(directory, pack);
            let mut file = file.map_err(|problem| needed(index, number, problem))?;
            file.read_fast(index.tier);
            Ok(Arc::new(file))
        };
        let packs: Result<_, StoreError> = (0..).zip(&index.packs).map(open).collect();
        Ok(Self { packs: packs? })
    }

    pub(crate) fn of(packs: Vec<Arc<PackFile>>) -> Self {
        Self { packs }
    }

    /// The stored pages of a chunk, one after the other, as they were when they were stored; in the buffer, unless they are read where
    /// they are. The process and the address of the area are for messages.
    ///
    /// # Errors
    /// [`StoreError::Chunk`].
    pub fn read<'b>(
        &'b self,
        process: i32,
        area: u64,
        chunk: &Chunk,
        buffer: &'b mut Buffer,
    ) -> Result<&'b [u8], StoreError> {
        let number = usize::try_from(chunk.place.pack).unwrap_or(usize::MAX);
        let pack = self.packs.get(number);
        let loaded = pack.map_or(Err("its pack is not known".to_owned()), |pack| {
            load(pack, chunk, buffer)
        });
        loaded.map_err(|what| StoreError::Chunk {
            path: pack.map_or_else(Default::default, |pack| pack.path.clone()),
            process,
            area,
            chunk: chunk.number,
            what,
        })
    }
}

/// Says which chunk makes a pack necessary.
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

/// The stored pages of a chunk, verified.
fn load<'b>(pack: &'b PackFile, chunk: &Chunk, buffer: &'b mut Buffer) -> Result<&'b [u8], String> {
    let bytes = chunk.pages.bytes();
    let stored = usize::try_from(chunk.place.bytes).map_err(|error| error.to_string())?;
    let offset = chunk.place.offset;
    let too_long = || format!("{stored} bytes cannot be those of {bytes}");
    let content = match chunk.place.encoding {
        Encoding::Raw if stored != bytes => return Err(too_long()),
        Encoding::Raw => match pack.mapped(offset, bytes) {
            Some(content) => content,
            None => {
                let content = buffer.as_mut_slice().get_mut(..bytes);
                let content = content.ok_or_else(too_long)?;
                fill(pack, offset, content)?;
                content
            }
        },
        Encoding::Zstd => {
            let (content, compressed) = buffer.with_compressed();
            let content = content.get_mut(..bytes).ok_or_else(too_long)?;
            let compressed = compressed.get_mut(..padded(stored)).ok_or_else(too_long)?;
            fill(pack, offset, compressed)?;
            let length = zstd::bulk::decompress_to_buffer(&compressed[..stored], content)
                .map_err(|error| format!("it cannot be decompressed ({error})"))?;
            if length != bytes {
                return Err(format!("{length} bytes are there and {bytes} are needed"));
            }
            content
        }
    };
    if Checksum::of(content) == chunk.checksum {
        Ok(content)
    } else {
        Err("its contents do not match their checksum, so they are damaged".to_owned())
    }
}

fn fill(pack: &PackFile, offset: u64, into: &mut [u8]) -> Result<(), String> {
    let read = pack.read_at(offset, into);
    let read = read.map_err(|error| error.to_string())?;
    if read < into.len() {
        let end = offset + read as u64;
        return Err(format!("the file ends at {end}, in the middle of it"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
