//! BLAKE3 of files, by several threads: each small file by one of them, a large one by all.
//!
//! The hash of a file is the usual one (`b3sum`). BLAKE3 is a tree, so parts of a file whose length
//! is a power of two are hashed apart, and their values merged.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, left_subtree_len, merge_subtrees_non_root, merge_subtrees_root,
};
use blake3::{Hash, Hasher};

/// The bytes that a thread hashes in one go; a power of two.
pub(super) const PART: u64 = 2 << 20;
/// The bytes that are read at once: they stay in the core's cache until they are hashed.
const BUFFER: usize = 256 << 10;

/// Returns the hash of the first `bytes` of a file.
///
/// # Errors
/// An I/O error; [`io::ErrorKind::UnexpectedEof`] if it has become shorter.
pub(super) fn of_file(file: &File, bytes: u64, threads: usize) -> io::Result<Hash> {
    let mut buffer = vec![0; BUFFER];
    if bytes <= PART {
        let mut hasher = Hasher::new();
        feed(&mut hasher, file, 0..bytes, &mut buffer)?;
        return Ok(hasher.finalize());
    }
    let parts = bytes.div_ceil(PART);
    let next = AtomicU64::new(0);
    let work = || -> io::Result<Vec<(u64, ChainingValue)>> {
        let mut buffer = vec![0; BUFFER];
        let mut done = Vec::new();
        loop {
            let part = next.fetch_add(1, Ordering::Relaxed);
            if part >= parts {
                return Ok(done);
            }
            let start = part * PART;
            let mut hasher = Hasher::new();
            hasher.set_input_offset(start);
            let end = bytes.min(start + PART);
            feed(&mut hasher, file, start..end, &mut buffer)?;
            done.push((part, hasher.finalize_non_root()));
        }
    };
    let mut done = Vec::new();
    for one in in_threads(threads, work) {
        done.extend(one?);
    }
    done.sort_unstable_by_key(|(part, _)| *part);
    let values: Vec<_> = done.into_iter().map(|(_, value)| value).collect();
    Ok(root(&values, bytes))
}

/// Does the same work in several threads, and waits for all of them.
pub fn in_threads<T: Send>(threads: usize, work: impl Fn() -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let started: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(&work)).collect();
        let joined = started.into_iter().map(thread::ScopedJoinHandle::join);
        joined
            .map(|one| one.unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}

fn feed(
    hasher: &mut Hasher,
    file: &File,
    range: std::ops::Range<u64>,
    buffer: &mut [u8],
) -> io::Result<()> {
    let mut at = range.start;
    while at < range.end {
        let left = usize::try_from(range.end - at).unwrap_or(usize::MAX);
        let wanted = left.min(buffer.len());
        file.read_exact_at(&mut buffer[..wanted], at)?;
        hasher.update(&buffer[..wanted]);
        at += wanted as u64;
    }
    Ok(())
}

/// Returns the hash of this many bytes, from the values of at least two parts.
fn root(values: &[ChainingValue], bytes: u64) -> Hash {
    let (left, right) = halves(values, bytes);
    merge_subtrees_root(&left, &right, Mode::Hash)
}

fn halves(values: &[ChainingValue], bytes: u64) -> (ChainingValue, ChainingValue) {
    // A power of two, and so a whole number of parts.
    let left = left_subtree_len(bytes);
    let parts = usize::try_from(left / PART).unwrap_or(usize::MAX);
    let (before, after) = values.split_at(parts.min(values.len()));
    (subtree(before, left), subtree(after, bytes - left))
}

fn subtree(values: &[ChainingValue], bytes: u64) -> ChainingValue {
    match values {
        [one] => *one,
        many => {
            let (left, right) = halves(many, bytes);
            merge_subtrees_non_root(&left, &right, Mode::Hash)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_usual_one_whatever_the_length() {
        let part = usize::try_from(PART).unwrap();
        let bytes: Vec<u8> = (0..=250).cycle().take(5 * part + 4097).collect();
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        let around = [0, 1, 1024, part, 2 * part, 4 * part, 5 * part];
        let lengths = around
            .into_iter()
            .flat_map(|length| [length, length + 1, length + 4097]);
        for length in lengths.filter(|length| *length <= bytes.len()) {
            for threads in [1, 3] {
                let hash = of_file(&file, length as u64, threads).unwrap();
                assert_eq!(hash, blake3::hash(&bytes[..length]), "{length}");
            }
        }
        let shorter = of_file(&file, 6 * PART, 2).unwrap_err();
        assert_eq!(shorter.kind(), io::ErrorKind::UnexpectedEof);
    }
}
