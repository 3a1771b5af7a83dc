use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::num::NonZeroUsize;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use super::*;

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
    clear(&file, size, FOUR).unwrap();
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
fn pages_that_are_not_there_are_an_error() {
    let file = create(4 << 20).unwrap();
    let error = clear(&file, 400 << 20, FOUR).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::FAULT.raw_os_error()));
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let inode = format!(" {} ", file.metadata().unwrap().ino());
    let of_file = |line: &str| line.contains(NAME) && line.contains(&inode);
    assert!(!maps.lines().any(of_file), "{maps}");
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
