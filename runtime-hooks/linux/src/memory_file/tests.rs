use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::num::NonZeroUsize;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::thread;
use std::time::Duration;

use rustix::fs::{major, minor};

use super::*;

const PATIENCE: Duration = Duration::from_secs(60);
const FOUR: NonZeroUsize = NonZeroUsize::new(4).unwrap();

fn allocated(file: &File) -> u64 {
    file.metadata().unwrap().blocks() * 512
}

#[test]
fn a_file_that_has_its_pages_is_empty() {
    let mut file = create((150 << 20) + 1).unwrap();
    let size = file.metadata().unwrap().len();
    assert_eq!(size, 152 << 20);
    assert_eq!(allocated(&file), 0);
    allocate(&file, size).unwrap();
    assert_eq!(allocated(&file), size);
    let clearing = Clearing::start(&file, size, FOUR).unwrap();
    assert!(clearing.ends_within(PATIENCE));
    assert_eq!(allocated(&file), size);
    file.seek(SeekFrom::End(-4)).unwrap();
    file.write_all(b"last").unwrap();
    file.rewind().unwrap();
    let mut contents = Vec::new();
    file.read_to_end(&mut contents).unwrap();
    let (zeros, last) = contents.split_at(contents.len() - 4);
    assert!(zeros.iter().all(|byte| *byte == 0));
    assert_eq!(last, b"last");
}

#[test]
fn a_file_that_has_no_room_is_an_error_and_has_no_pages() {
    let file = create(4 << 20).unwrap();
    file.set_len(400 << 20).unwrap();
    let error = allocate(&file, 400 << 20).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(allocated(&file), 0);
}

#[test]
fn where_there_are_no_pages_all_threads_end() {
    let file = create(4 << 20).unwrap();
    let clearing = Clearing::start(&file, 400 << 20, FOUR).unwrap();
    assert!(clearing.ends_within(PATIENCE));
    while clearing.threads() > 0 {
        thread::yield_now();
    }
    drop(clearing);
    assert_eq!(mappings_of(&file), 0);
}

/// A writer finds zeros before it writes, and its data afterwards, while pages are cleared.
#[test]
fn what_is_written_meanwhile_stays() {
    const BYTES: u64 = 256 << 20;
    const STEP: u64 = 1 << 20;
    let file = create(BYTES).unwrap();
    allocate(&file, BYTES).unwrap();
    let clearing = Clearing::start(&file, BYTES, FOUR).unwrap();
    clearing.limit_threads(1);
    let starts = || (0..BYTES / STEP).map(|number| number * STEP + number);
    for start in starts() {
        let mut found = [1; 8];
        file.read_exact_at(&mut found, start).unwrap();
        assert_eq!(found, [0; 8]);
        file.write_all_at(&(start + 1).to_ne_bytes(), start)
            .unwrap();
    }
    assert!(clearing.ends_within(PATIENCE));
    for start in starts() {
        let mut found = [0; 8];
        file.read_exact_at(&mut found, start).unwrap();
        assert_eq!(u64::from_ne_bytes(found), start + 1);
    }
}

/// A mapped file could not be sealed.
#[test]
fn a_file_is_not_mapped_once_it_is_cleared_no_more() {
    let file = create(400 << 20).unwrap();
    allocate(&file, 400 << 20).unwrap();
    let clearing = Clearing::start(&file, 400 << 20, FOUR).unwrap();
    assert_eq!(mappings_of(&file), 1);
    drop(clearing);
    assert_eq!(mappings_of(&file), 0);
}

fn mappings_of(file: &File) -> usize {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let metadata = file.metadata().unwrap();
    let (major, minor) = (major(metadata.dev()), minor(metadata.dev()));
    let place = format!(" {major:02x}:{minor:02x} {} ", metadata.ino());
    maps.lines().filter(|line| line.contains(&place)).count()
}

#[test]
fn it_is_on_a_file_system_of_its_own_that_is_mounted_nowhere() {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let files = [(); 2].map(|()| create(1).unwrap());
    let devices = files.each_ref().map(|file| file.metadata().unwrap().dev());
    assert_ne!(devices[0], devices[1]);
    assert_eq!(fs::read_to_string("/proc/self/mountinfo").unwrap(), mounts);
    let link = fs::read_link(format!("/proc/self/fd/{}", files[0].as_raw_fd())).unwrap();
    assert!(link.to_string_lossy().ends_with("(deleted)"), "{link:?}");
}
