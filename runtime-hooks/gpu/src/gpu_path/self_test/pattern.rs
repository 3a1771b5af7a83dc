//! The contents of the GPU memory: each word encodes its own address, so a word that is elsewhere,
//! or missing, is found wherever the driver puts it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes of GPU memory: some pieces of the 2 MiB that the driver copies at a time.
pub(super) const BYTES: u64 = 16 << 20;
const WORD: u64 = 8;
pub(super) const WORDS: u64 = BYTES / WORD;

/// Odd, so no two addresses have the same word.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// The inverse of [`FACTOR`].
const INVERSE: u64 = 0xf1de_83e1_9937_733d;
const _: () = assert!(FACTOR.wrapping_mul(INVERSE) == 1);

/// The words of the memory at this address, in order.
pub(super) fn words(address: u64) -> impl Iterator<Item = u64> {
    (0..WORDS).map(move |index| (address + index * WORD).wrapping_mul(FACTOR))
}

/// How many of the words are nowhere in the first `length` bytes of a file.
///
/// # Errors
/// An error of reading the file.
pub(super) fn missing(file: &File, length: u64, address: u64) -> io::Result<u64> {
    let mut is_there = vec![false; usize::try_from(WORDS).map_err(io::Error::other)?];
    let mut piece = vec![0; 1 << 20];
    let mut start = 0;
    while start < length {
        let read = file.read_at(&mut piece, start)?;
        if read == 0 {
            break;
        }
        let (found, _) = piece[..read].as_chunks();
        for word in found {
            let index = u64::from_ne_bytes(*word)
                .wrapping_mul(INVERSE)
                .wrapping_sub(address);
            let place = usize::try_from(index / WORD).ok();
            let place = place.filter(|_| index.is_multiple_of(WORD));
            if let Some(there) = place.and_then(|place| is_there.get_mut(place)) {
                *there = true;
            }
        }
        start += read as u64;
    }
    Ok(is_there.iter().filter(|there| !**there).count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: u64 = 0x7f12_0000_0000;

    fn file(bytes: &[u8]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file
    }

    fn pattern() -> Vec<u8> {
        words(ADDRESS).flat_map(u64::to_ne_bytes).collect()
    }

    #[test]
    fn the_pattern_is_found_wherever_it_is() {
        let mut bytes = vec![0; 4096];
        bytes.extend(pattern());
        let length = bytes.len() as u64;
        assert_eq!(missing(&file(&bytes), length, ADDRESS).unwrap(), 0);
        bytes.rotate_left(1 << 21);
        assert_eq!(missing(&file(&bytes), length, ADDRESS).unwrap(), 0);
    }

    #[test]
    fn each_word_that_is_not_there_is_missed() {
        let mut bytes = pattern();
        assert_eq!(
            missing(&file(&bytes), BYTES, ADDRESS + BYTES).unwrap(),
            WORDS
        );
        bytes[77] ^= 1;
        assert_eq!(missing(&file(&bytes), BYTES, ADDRESS).unwrap(), 1);
        bytes.truncate(bytes.len() - (2 << 20));
        let lost = (2 << 20) / WORD;
        assert_eq!(missing(&file(&bytes), BYTES, ADDRESS).unwrap(), lost + 1);
        assert_eq!(missing(&file(&pattern()), 0, ADDRESS).unwrap(), WORDS);
    }
}
