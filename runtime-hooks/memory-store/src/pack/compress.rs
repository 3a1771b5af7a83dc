//! Compresses contents, where that is worth it.

use std::fmt;
use std::io;

use zstd::bulk;

use crate::CHUNK;
use crate::chunk::buffer::Aligned;
use crate::pack::padded;

/// Compression has to save one part in this number, or is not worth the decompression.
const WORTHWHILE: usize = 16;

/// A thread's compressor, with the memory that it needs.
pub(crate) struct Compressor {
    zstd: bulk::Compressor<'static>,
    /// Parts copied together.
    input: Aligned,
    output: Aligned,
}

/// A content as it is stored.
pub(crate) struct Compressed<'a> {
    pub(crate) bytes: usize,
    /// The compressed bytes, and zeros that fill the last page.
    pub(crate) padded: &'a [u8],
}

impl Compressor {
    /// Makes one with this level of zstd.
    pub(crate) fn new(level: i32) -> io::Result<Self> {
        Ok(Self {
            zstd: bulk::Compressor::new(level)?,
            input: Aligned::new(CHUNK),
            output: Aligned::new(CHUNK),
        })
    }

    /// Compresses contents that lie in several places, at most a chunk. `None`: they would not
    /// become smaller by enough.
    pub(crate) fn compress(&mut self, parts: &[&[u8]]) -> Option<Compressed<'_>> {
        let content = match parts {
            [whole] => whole,
            parts => gather(parts, self.input.as_mut_slice()),
        };
        let output = self.output.as_mut_slice();
        let worthwhile = content.len() - content.len() / WORTHWHILE;
        // An error means that it does not fit.
        let compressed = self
            .zstd
            .compress_to_buffer(content, &mut output[..worthwhile]);
        let bytes = compressed.ok()?;
        let end = padded(bytes);
        if end >= content.len() {
            return None;
        }
        output[bytes..end].fill(0);
        Some(Compressed {
            bytes,
            padded: &output[..end],
        })
    }
}

fn gather<'a>(parts: &[&[u8]], into: &'a mut [u8]) -> &'a [u8] {
    let mut end = 0;
    for part in parts {
        into[end..end + part.len()].copy_from_slice(part);
        end += part.len();
    }
    &into[..end]
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Compressor")
    }
}
