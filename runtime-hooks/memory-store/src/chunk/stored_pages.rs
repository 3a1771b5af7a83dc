//! The stored pages of a chunk: the pages that are not zero.

use std::io::{Read, Result, Write};

use borsh::{BorshDeserialize, BorshSerialize};

use crate::{CHUNK, PAGE};

pub(crate) const WORDS: usize = CHUNK / PAGE / 64;
/// Bytes compared in one go: long enough for vector instructions, short enough to end early.
const BLOCK: usize = 256;

/// The pages of a chunk that are stored; the others are zero.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum StoredPages {
    /// The first pages in this number (1 to 1024), which are all that the chunk has.
    All(u16),
    /// The pages whose bit is set: bit `n % 64` of word `n / 64` is page `n`.
    Some(Box<[u64; WORDS]>),
}

/// Adjacent stored pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Offset of the first page, from the start of the chunk.
    pub offset: usize,
    /// Length in bytes.
    pub bytes: usize,
}

impl StoredPages {
    /// Finds the pages of these contents that are not zero. The contents are a multiple of [`PAGE`]
    /// and at most [`CHUNK`] long. `None`: all are zero.
    #[must_use]
    pub fn of(content: &[u8]) -> Option<Self> {
        debug_assert!(content.len() <= CHUNK && content.len().is_multiple_of(PAGE));
        let mut bits = Box::new([0; WORDS]);
        let mut stored = 0;
        let mut pages = 0;
        for (number, page) in content.chunks(PAGE).take(CHUNK / PAGE).enumerate() {
            pages += 1;
            if !is_zero(page) {
                bits[number / 64] |= 1 << (number % 64);
                stored += 1;
            }
        }
        match stored {
            0 => None,
            all if all == pages => Some(Self::All(pages)),
            _ => Some(Self::Some(bits)),
        }
    }

    /// The number of stored pages.
    pub fn count(&self) -> usize {
        match self {
            Self::All(pages) => usize::from(*pages),
            Self::Some(bits) => bits.iter().map(|word| word.count_ones() as usize).sum(),
        }
    }

    /// The length of the stored pages in bytes.
    pub fn bytes(&self) -> usize {
        self.count() * PAGE
    }

    /// Whether the page of this number is stored.
    pub fn contains(&self, page: usize) -> bool {
        match self {
            Self::All(pages) => page < usize::from(*pages),
            Self::Some(bits) => bits
                .get(page / 64)
                .is_some_and(|word| word >> (page % 64) & 1 == 1),
        }
    }

    /// The number after that of the last stored page.
    pub(crate) fn end(&self) -> usize {
        match self {
            Self::All(pages) => usize::from(*pages),
            Self::Some(bits) => {
                let last = bits.iter().rposition(|word| *word != 0);
                last.map_or(0, |word| {
                    word * 64 + 64 - bits[word].leading_zeros() as usize
                })
            }
        }
    }

    /// Returns the stored pages in the content of their chunk. `None`: the content is too short.
    pub(crate) fn slices<'a>(&self, content: &'a [u8]) -> Option<Vec<&'a [u8]>> {
        self.runs()
            .map(|run| content.get(run.offset..run.offset + run.bytes))
            .collect()
    }

    /// Returns the stored pages in runs as long as possible, from the first to the last.
    pub fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        let end = self.end();
        let mut next = 0;
        std::iter::from_fn(move || {
            let start = (next..end).find(|page| self.contains(*page))?;
            next = (start..end)
                .find(|page| !self.contains(*page))
                .unwrap_or(end);
            Some(Run {
                offset: start * PAGE,
                bytes: (next - start) * PAGE,
            })
        })
    }

    /// Returns the runs in parts of this many bytes; the last part may have fewer. A run that
    /// reaches into the next part is cut.
    pub(crate) fn runs_in_parts(&self, bytes: usize) -> impl Iterator<Item = Vec<Run>> + '_ {
        let mut runs = self.runs();
        let mut rest = None;
        std::iter::from_fn(move || {
            let mut part = Vec::new();
            let mut room = bytes;
            while room > 0
                && let Some(Run { offset, bytes }) = rest.take().or_else(|| runs.next())
            {
                let own = bytes.min(room);
                part.push(Run { offset, bytes: own });
                rest = (own < bytes).then(|| Run {
                    offset: offset + own,
                    bytes: bytes - own,
                });
                room -= own;
            }
            (!part.is_empty()).then_some(part)
        })
    }
}

/// A zero in place of the number of pages announces a bitmap.
impl BorshSerialize for StoredPages {
    fn serialize<W: Write>(&self, into: &mut W) -> Result<()> {
        match self {
            Self::All(pages) => pages.serialize(into),
            Self::Some(bits) => (0_u16, **bits).serialize(into),
        }
    }
}

impl BorshDeserialize for StoredPages {
    fn deserialize_reader<R: Read>(from: &mut R) -> Result<Self> {
        Ok(match u16::deserialize_reader(from)? {
            0 => Self::Some(Box::deserialize_reader(from)?),
            all => Self::All(all),
        })
    }
}

/// Whether a page has only zeros, as fast as memory is read.
fn is_zero(page: &[u8]) -> bool {
    let (blocks, rest) = page.as_chunks::<BLOCK>();
    blocks.iter().all(is_zero_block) && rest.iter().all(|byte| *byte == 0)
}

fn is_zero_block(block: &[u8; BLOCK]) -> bool {
    let (words, _) = block.as_chunks::<8>();
    let all = words
        .iter()
        .fold(0, |all, word| all | u64::from_ne_bytes(*word));
    all == 0
}

#[cfg(test)]
mod tests;
