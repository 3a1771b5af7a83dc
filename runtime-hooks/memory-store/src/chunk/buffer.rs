//! Memory of a chunk's size that the kernel can read and write past the page cache.

use std::fmt;

use crate::chunk::huge_pages;
use crate::{CHUNK, PAGE};

const HUGE_PAGE: usize = 2 << 20;

/// Room for one chunk, aligned for `O_DIRECT`. A thread makes one and uses it again and again.
#[derive(Debug)]
pub struct Buffer {
    content: Aligned,
    /// For compressed contents; made on first use.
    compressed: Option<Aligned>,
}

impl Buffer {
    /// Makes a buffer of zeros.
    #[must_use]
    pub fn new() -> Self {
        Self {
            content: Aligned::new(CHUNK),
            compressed: None,
        }
    }

    /// All [`CHUNK`] bytes.
    pub fn as_slice(&self) -> &[u8] {
        self.content.as_slice()
    }

    /// All [`CHUNK`] bytes.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.content.as_mut_slice()
    }

    /// All [`CHUNK`] bytes, and as many more beside them.
    pub(crate) fn with_compressed(&mut self) -> (&mut [u8], &mut [u8]) {
        let compressed = self.compressed.get_or_insert_with(|| Aligned::new(CHUNK));
        (self.content.as_mut_slice(), compressed.as_mut_slice())
    }
}

impl Default for Buffer {
    fn default() -> Self {
        Self::new()
    }
}

/// Bytes that begin at a page; at a huge one if they are long enough for it.
pub(crate) struct Aligned {
    /// Longer than `length`; never grows, so it never moves.
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    pub(crate) fn new(length: usize) -> Self {
        let align = if length < HUGE_PAGE { PAGE } else { HUGE_PAGE };
        let bytes = vec![0; length + align];
        let start = bytes.as_ptr().align_offset(align).min(align);
        let mut new = Self {
            bytes,
            start,
            length,
        };
        if align == HUGE_PAGE {
            huge_pages::advise(new.as_mut_slice());
        }
        new
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

impl fmt::Debug for Aligned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Aligned({} bytes)", self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_begins_at_a_page() {
        let mut buffer = Buffer::new();
        assert!(buffer.as_slice().as_ptr().addr().is_multiple_of(PAGE));
        assert_eq!(buffer.as_mut_slice().len(), CHUNK);
        let (content, compressed) = buffer.with_compressed();
        assert!(compressed.as_ptr().addr().is_multiple_of(PAGE));
        assert_eq!(content.len(), compressed.len());
    }
}
