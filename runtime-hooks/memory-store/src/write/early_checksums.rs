//! Checksums of contents, taken while another process still puts these into their pack.
//!
//! A process stands still until its contents have checksums. Taken behind the process that fills
//! the pack, and beside it, they cost the process nothing. They lie in a file beside the pack until
//! a [`Writer`] stores the contents, which uses them once a sample has shown that they are right.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use stasis_linux::file::{self, Access, Durability};

use crate::file_contents::queue::share_out;
use crate::pack::{self, mapping};
use crate::{CHUNK, Checksum, IN_PLACE_OFFSET, ImageId, Pack, StoreError, Writer};

/// A chunk is filled in a fifth of a millisecond.
const LOOK: Duration = Duration::from_micros(500);
/// The number of chunks in the sample that decides whether all are right.
const SAMPLE: usize = 64;
/// Checksums of more contents than any machine has in memory: 64 TiB.
const MAX_BYTES: u64 = 256 << 20;

/// Checksums of the chunks at the beginning of contents, as many as were taken.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct EarlyChecksums(Vec<Checksum>);

impl EarlyChecksums {
    /// Takes checksums on `threads` threads, of contents that are put into a new pack
    /// ([`create_pack`](crate::create_pack)) and have at most `bytes`. `filled` returns how many
    /// bytes at the beginning are final; `None`: there is nothing more to wait for.
    pub fn take(
        pack: &File,
        bytes: u64,
        threads: NonZeroUsize,
        filled: impl Fn() -> Option<u64> + Sync,
    ) -> io::Result<Self> {
        let mapped = mapping::map_part(pack, IN_PLACE_OFFSET, bytes)?;
        let taken = share_out(mapped.chunks_exact(CHUNK).enumerate(), threads, |chunks| {
            let mut taken = Vec::new();
            while let Some((number, chunk)) = chunks.take() {
                if !is_filled(number, &filled) {
                    break;
                }
                taken.push((number, Checksum::of(chunk)));
            }
            Ok(taken)
        });
        let mut taken = taken.map_err(io::Error::other)?.concat();
        taken.sort_unstable_by_key(|(number, _)| *number);
        let without_gap = (0..)
            .zip(taken)
            .take_while(|(wanted, (number, _))| wanted == number);
        Ok(Self(
            without_gap.map(|(_, (_, checksum))| checksum).collect(),
        ))
    }

    /// Leaves the checksums of the first `filled` bytes beside the pack, for its [`Writer`].
    pub fn leave(
        &self,
        filled: u64,
        directory: &Path,
        image_id: ImageId,
        stream: u16,
    ) -> Result<(), StoreError> {
        let pack = Pack::new(image_id, stream);
        let path = pack::beside(&directory.join(pack.file_name()));
        let chunks = usize::try_from(filled / CHUNK as u64).unwrap_or(usize::MAX);
        let left = self.0.iter().take(chunks);
        let bytes: Vec<u8> = left.flat_map(|checksum| checksum.0.to_le_bytes()).collect();
        file::replace(&path, &bytes, Access::Private, Durability::Volatile)
            .map_err(StoreError::writing(&path))
    }

    /// Takes the checksums that were left beside a pack, and removes their file.
    pub(super) fn of(pack: &Path) -> Self {
        let path = pack::beside(pack);
        let bytes = file::read(&path, MAX_BYTES).ok().flatten();
        let _ = file::remove(&path);
        let bytes = bytes.unwrap_or_default();
        let (checksums, _) = bytes.as_chunks();
        let checksums = checksums
            .iter()
            .map(|bytes| Checksum(u128::from_le_bytes(*bytes)));
        Self(checksums.collect())
    }

    /// Returns the checksum of a chunk, if it was taken.
    pub(super) fn get(&self, number: u32) -> Option<Checksum> {
        self.0.get(usize::try_from(number).ok()?).copied()
    }
}

impl From<Vec<Checksum>> for EarlyChecksums {
    fn from(checksums: Vec<Checksum>) -> Self {
        Self(checksums)
    }
}

/// Waits until a chunk is filled; false if the wait was ended.
fn is_filled(number: usize, filled: impl Fn() -> Option<u64>) -> bool {
    let end = (number as u64 + 1) * CHUNK as u64;
    loop {
        match filled() {
            None => return false,
            Some(filled) if filled >= end => return true,
            Some(_) => sleep(LOOK),
        }
    }
}

impl Writer {
    /// Returns the checksums if a sample of them is right. Otherwise the report says so: checksums
    /// cannot be taken early from a driver that changes bytes after it has copied them.
    pub(super) fn believed(
        &self,
        checksums: EarlyChecksums,
        content: &[u8],
        threads: NonZeroUsize,
    ) -> Result<EarlyChecksums, StoreError> {
        let step = (checksums.0.len() / SAMPLE).max(1);
        let chunks = (0_usize..).zip(content.chunks(CHUNK)).zip(&checksums.0);
        let sample: Vec<_> = chunks.step_by(step).collect();
        let wrong = share_out(sample.into_iter(), threads, |chunks| {
            let mut wrong = Vec::new();
            while let Some(((number, content), checksum)) = chunks.take() {
                if Checksum::of(content) != *checksum {
                    wrong.push(number);
                }
            }
            Ok(wrong)
        })?;
        let Some(wrong) = wrong.concat().into_iter().min() else {
            return Ok(checksums);
        };
        self.state().not_reused.get_or_insert_with(|| {
            format!("checksums from before the end of the driver's copy: chunk {wrong} has another")
        });
        Ok(EarlyChecksums::default())
    }
}

#[cfg(test)]
mod tests;
