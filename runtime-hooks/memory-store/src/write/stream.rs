//! Stores the chunks of one thread.

use crate::pack::compress::{Compressed, Compressor};
use crate::pack::padded;
use crate::pack::writer::PackWriter;
use crate::reader::load;
use crate::{Buffer, Checksum, ChunkLocation, Encoding, StoreError, StoredPages, Writer};

/// A pack of its own for each thread, made on the first write.
#[derive(Debug)]
pub(crate) struct Stream<'w> {
    writer: &'w Writer,
    pack: Option<(u32, PackWriter)>,
    compressor: Option<Compressor>,
    /// For comparisons; made on first use.
    stored: Option<Buffer>,
    report: StreamReport,
}

/// Figures of a thread's stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamReport {
    /// Bytes that were written, after compression and with zeros that fill the last page.
    pub stored_bytes: u64,
    /// Bytes of memory that were stored already.
    pub reused_bytes: u64,
}

impl<'w> Stream<'w> {
    pub(crate) fn new(writer: &'w Writer) -> Result<Self, StoreError> {
        let compressor = writer.level().map(Compressor::new).transpose();
        let compressor = compressor.map_err(|error| StoreError::Impossible {
            what: format!("zstd cannot be started: {error}"),
        })?;
        Ok(Self {
            writer,
            pack: None,
            compressor,
            stored: None,
            report: StreamReport::default(),
        })
    }

    /// Stores these pages of a chunk, from their places in its content. Pages that are stored
    /// already are not stored again; they are read and compared, since the contents are given up in
    /// exchange. Parts that do not begin at a page are not written past the page cache.
    pub(crate) fn put(
        &mut self,
        content: &[u8],
        pages: &StoredPages,
    ) -> Result<(Checksum, ChunkLocation), StoreError> {
        let bytes = pages.bytes();
        let parts = pages.slices(content);
        let Some(parts) = parts.filter(|parts| !parts.is_empty()) else {
            let what = format!("a chunk cannot have {bytes} bytes");
            return Err(StoreError::Impossible { what });
        };
        let key = (Checksum::of_parts(&parts), bytes);
        if let Some(place) = self.same(key, &parts) {
            self.report.reused_bytes += bytes as u64;
            return Ok((key.0, place));
        }
        let place = self.store(&parts)?;
        self.writer.remember(key, place);
        Ok((key.0, place))
    }

    /// Finds the place of the same contents. A checksum is no proof: a pack may be damaged since,
    /// and a program that knows the checksum can make other contents with it.
    fn same(&mut self, key: (Checksum, usize), parts: &[&[u8]]) -> Option<ChunkLocation> {
        let (place, pack) = self.writer.known(key)?;
        let buffer = self.stored.get_or_insert_with(Buffer::new);
        let what = match load(&pack, place, key.1, buffer) {
            Ok(stored) if is_same(stored, parts) => return Some(place),
            Ok(_) => "its contents differ from what was to be there".to_owned(),
            Err(error) => error.to_string(),
        };
        self.writer.distrust(&pack.path, place.offset, &what);
        None
    }

    fn store(&mut self, parts: &[&[u8]]) -> Result<ChunkLocation, StoreError> {
        let (number, pack) = match &mut self.pack {
            Some(pack) => pack,
            none => none.insert(self.writer.add_pack()?),
        };
        let compressor = self.compressor.as_mut();
        let compressed = compressor.and_then(|compressor| compressor.compress(parts));
        let (encoding, bytes, offset) = match compressed {
            Some(Compressed { bytes, padded }) => (Encoding::Zstd, bytes, pack.append(&[padded])?),
            None => {
                let bytes = parts.iter().map(|part| part.len()).sum();
                (Encoding::Raw, bytes, pack.append(parts)?)
            }
        };
        self.report.stored_bytes += padded(bytes) as u64;
        Ok(ChunkLocation {
            pack: *number,
            offset,
            // At most a chunk.
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            encoding,
        })
    }

    /// Ends the pack. A pack apart from its image is on the disk when this returns.
    pub(crate) fn close(mut self) -> Result<StreamReport, StoreError> {
        if let Some((number, pack)) = self.pack.take() {
            self.writer.close_pack(number, pack.close()?);
        }
        Ok(self.report)
    }
}

fn is_same(mut stored: &[u8], parts: &[&[u8]]) -> bool {
    for part in parts {
        match stored.strip_prefix(*part) {
            Some(rest) => stored = rest,
            None => return false,
        }
    }
    stored.is_empty()
}
