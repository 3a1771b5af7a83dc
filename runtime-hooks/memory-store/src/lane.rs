//! What one thread stores.

use zstd::bulk::Compressor;

use crate::buffer::Aligned;
use crate::pack_writer::{PackWriter, padded};
use crate::{Buffer, CHUNK, Checksum, Encoding, PAGE, Place, StoreError, Writer};

/// Compression has to save one part of so many, or what it saves is not worth the decompression.
const WORTHWHILE: usize = 16;

/// A pack of its own for each thread, made when there is something to write.
#[derive(Debug)]
pub struct Lane<'w> {
    writer: &'w Writer,
    pack: Option<(u32, PackWriter)>,
    compression: Option<Compression>,
    report: LaneReport,
}

/// What a thread has stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LaneReport {
    /// Bytes that were written, after compression and with what fills the last page.
    pub stored_bytes: u64,
    /// Bytes of memory that were stored already.
    pub reused_bytes: u64,
}

struct Compression {
    compressor: Compressor<'static>,
    output: Aligned,
}

impl std::fmt::Debug for Compression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Compression")
    }
}

impl<'w> Lane<'w> {
    pub(crate) fn new(writer: &'w Writer) -> Result<Self, StoreError> {
        let start = |level| {
            Compressor::new(level).map(|compressor| Compression {
                compressor,
                output: Aligned::new(CHUNK),
            })
        };
        let compression = writer.level().map(start).transpose();
        let compression = compression.map_err(|error| StoreError::Impossible {
            what: format!("zstd cannot be started: {error}"),
        })?;
        Ok(Self {
            writer,
            pack: None,
            compression,
            report: LaneReport::default(),
        })
    }

    /// Stores the first so many bytes, the stored pages of a chunk moved together; a multiple of [`PAGE`]. Contents that are stored
    /// already, by this checkpoint or by the earlier one, are not stored again.
    ///
    /// # Errors
    /// [`StoreError`]; what was stored before can still be read.
    pub fn put(&mut self, content: &Buffer, bytes: usize) -> Result<(Checksum, Place), StoreError> {
        let content = content.as_slice().get(..bytes);
        let Some(content) = content.filter(|_| bytes > 0 && bytes.is_multiple_of(PAGE)) else {
            let what = format!("a chunk cannot have {bytes} bytes");
            return Err(StoreError::Impossible { what });
        };
        let key = (Checksum::of(content), bytes);
        if let Some(place) = self.writer.known(key) {
            self.report.reused_bytes += bytes as u64;
            return Ok((key.0, place));
        }
        let place = self.store(content)?;
        self.writer.remember(key, place);
        Ok((key.0, place))
    }

    /// Makes its pack now: a process that is forked later knows, and can read, what is put from then on.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn open(&mut self) -> Result<(), StoreError> {
        if self.pack.is_none() {
            self.pack = Some(self.writer.add_pack()?);
        }
        Ok(())
    }

    fn store(&mut self, content: &[u8]) -> Result<Place, StoreError> {
        let (encoding, bytes, pages) = encode(self.compression.as_mut(), content);
        let (number, pack) = match &mut self.pack {
            Some(pack) => pack,
            none => none.insert(self.writer.add_pack()?),
        };
        let offset = pack.append(pages)?;
        self.report.stored_bytes += pages.len() as u64;
        Ok(Place {
            pack: *number,
            offset,
            // At most a chunk.
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            encoding,
        })
    }

    /// Ends its pack; on disk when this returns, where that is what the tier is for.
    ///
    /// # Errors
    /// [`StoreError`]; what was stored can still be read.
    pub fn close(mut self) -> Result<LaneReport, StoreError> {
        if let Some((number, pack)) = self.pack.take() {
            self.writer.close_pack(number, pack.close()?);
        }
        Ok(self.report)
    }
}

/// How a content is to be stored, its length then, and that with what fills the last page.
fn encode<'a>(
    compression: Option<&'a mut Compression>,
    content: &'a [u8],
) -> (Encoding, usize, &'a [u8]) {
    let raw = (Encoding::Raw, content.len(), content);
    let Some(compression) = compression else {
        return raw;
    };
    let output = compression.output.as_mut_slice();
    let compressor = &mut compression.compressor;
    let worthwhile = content.len() - content.len() / WORTHWHILE;
    // An error means that it does not fit.
    let Ok(bytes) = compressor.compress_to_buffer(content, &mut output[..worthwhile]) else {
        return raw;
    };
    let end = padded(bytes);
    if end >= content.len() {
        return raw;
    }
    output[bytes..end].fill(0);
    (Encoding::Zstd, bytes, &output[..end])
}
