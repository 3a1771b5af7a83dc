use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use super::*;
use crate::create_pack;
use crate::test_data::{Images, content, names};

const THREADS: NonZeroUsize = NonZeroUsize::new(3).unwrap();
const CHUNKS: usize = 5;

fn contents() -> Vec<u8> {
    let chunks = (0..).take(CHUNKS).map(content);
    chunks.flatten().collect()
}

fn checksums(contents: &[u8]) -> Vec<Checksum> {
    contents.chunks_exact(CHUNK).map(Checksum::of).collect()
}

#[test]
fn they_are_taken_behind_who_fills_the_pack() {
    let images = Images::in_memory();
    let contents = contents();
    let bytes = contents.len() as u64;
    let pack = create_pack(&images.directory(1), ImageId::new(1), 0, bytes).unwrap();
    let filled = AtomicU64::new(0);
    let taken = thread::scope(|scope| {
        let take = || {
            let looks = || Some(filled.load(Ordering::Acquire));
            EarlyChecksums::take(&pack, bytes, THREADS, looks)
        };
        let taken = scope.spawn(take);
        for (number, piece) in (0_u64..).zip(contents.chunks(CHUNK / 2)) {
            let start = number * piece.len() as u64;
            pack.write_all_at(piece, IN_PLACE_OFFSET + start).unwrap();
            filled.store(start + piece.len() as u64, Ordering::Release);
        }
        taken.join().unwrap().unwrap()
    });
    assert_eq!(*taken.0, checksums(&contents));
}

#[test]
fn what_is_not_filled_at_the_end_is_left_out() {
    let images = Images::in_memory();
    let contents = contents();
    let bytes = contents.len() as u64;
    let pack = create_pack(&images.directory(1), ImageId::new(1), 0, bytes).unwrap();
    pack.write_all_at(&contents, IN_PLACE_OFFSET).unwrap();
    let looks = AtomicUsize::new(0);
    let filled = || {
        let is_over = looks.fetch_add(1, Ordering::Relaxed) > 100;
        (!is_over).then_some(3 * CHUNK as u64 - 1)
    };
    let taken = EarlyChecksums::take(&pack, bytes, THREADS, filled).unwrap();
    assert_eq!(*taken.0, checksums(&contents)[..2]);
}

#[test]
fn they_are_found_once_by_the_name_of_their_pack() {
    let images = Images::in_memory();
    let directory = images.directory(1);
    let contents = contents();
    let pack = create_pack(&directory, ImageId::new(1), 7, contents.len() as u64).unwrap();
    drop(pack);
    let all = EarlyChecksums(checksums(&contents));
    // Of the last of three chunks a byte is missing.
    let filled = 3 * CHUNK as u64 - 1;
    all.leave(filled, &directory, ImageId::new(1), 7).unwrap();
    let names = names(&directory);
    assert!(
        names.len() == 2 && names.iter().all(|name| pack::is_of_pack(name)),
        "{names:?}"
    );
    let path = names.iter().find(|name| crate::is_pack_name(name)).unwrap();
    let path = directory.join(path);
    let found = EarlyChecksums::of(&path);
    assert_eq!(*found.0, all.0[..2]);
    assert_eq!((found.get(1), found.get(2)), (Some(all.0[1]), None));
    assert_eq!(EarlyChecksums::of(&path), EarlyChecksums::default());
}
