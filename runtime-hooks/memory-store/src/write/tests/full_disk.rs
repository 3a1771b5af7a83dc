//! A dump onto disks of every size that matters.

use std::io::Write;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use nix::mount::{MsFlags, mount, umount};
use nix::sched::{CloneFlags, unshare};

use crate::left_out::say_left_out;
use crate::test_data::{
    Images, START, content, names, request, store_files, text, try_store, verify,
};
use crate::{CHUNK, FileContents, Index, Reader, Writer, discard};

/// A tmpfs of this size, seen only by this thread; none without the right to mount.
fn small_disk(kib: usize, at: &Path) -> Option<()> {
    let none: Option<&str> = None;
    if !nix::unistd::geteuid().is_root() {
        say_left_out("full disks", "mounting needs root").unwrap();
        return None;
    }
    if umount(at).is_err() {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(none, "/", none, private, none).unwrap();
    }
    let options = format!("size={kib}k,huge=never");
    let flags = MsFlags::empty();
    mount(
        Some("none"),
        at,
        Some("tmpfs"),
        flags,
        Some(options.as_str()),
    )
    .unwrap();
    Some(())
}

#[test]
fn wherever_the_disk_is_full_nothing_is_lost() {
    let images = Images::new();
    let at = images.image(1);
    let seeds = [3, 6];
    // 8 MiB of chunks, a header, directories, and the index.
    let (chunks, step) = (2 * 4096 + 4, 24);
    let sizes = (8..chunks)
        .step_by(812)
        .chain((chunks - step..chunks + step).step_by(4));
    let mut succeeded = 0;
    let mut failed_late = 0;
    let stores = [None, Some(at.join("store"))];
    for (store, kib) in sizes.flat_map(|kib| stores.clone().map(|store| (store, kib))) {
        if small_disk(kib, &at).is_none() {
            return;
        }
        let request = request(store, 1);
        let mut writer = Writer::create(&at, &request).unwrap();
        let (process, stored) = try_store(&writer, &seeds);
        verify(&writer.reader(), &process, &seeds);
        let all_put = stored.is_ok();
        match stored.and_then(|_| writer.finish(std::slice::from_ref(&process))) {
            Ok(index) => {
                succeeded += 1;
                let reader = Reader::open(&at, &index, request.directory.as_deref()).unwrap();
                verify(&reader, &index.processes[0], &seeds);
            }
            Err(error) => {
                let message = text(&error);
                assert!(message.contains("the disk is full"), "{message}");
                assert!(message.contains(at.to_str().unwrap()), "{message}");
                assert_eq!(Index::read(&at).unwrap(), None);
                failed_late += usize::from(all_put);
                verify(&writer.reader(), &process, &seeds);
            }
        }
        drop(writer);
        discard(&at, request.directory.as_deref()).unwrap();
        assert_eq!(names(&at), [""; 0]);
    }
    umount(&at).unwrap();
    assert!(
        succeeded > 1 && failed_late > 0,
        "{succeeded} {failed_late}"
    );
}

#[test]
fn files_that_find_the_disk_full_leave_nothing_behind() {
    let images = Images::new();
    let at = images.image(1);
    let threads = NonZeroUsize::new(3).unwrap();
    let mut file = tempfile::tempfile_in("/dev/shm").unwrap();
    for seed in 0..12 {
        file.write_all(&content(3 * seed)).unwrap();
    }
    // Each chunk is a piece of its own, so that other threads are at work when one fails.
    let contents = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11].map(|number| FileContents {
        pid: 7,
        start: START + number * CHUNK as u64,
        file: &file,
        offset: number * CHUNK as u64,
        bytes: CHUNK as u64,
    });
    for store in [None, Some(at.join("store"))] {
        if small_disk(16 << 10, &at).is_none() {
            return;
        }
        let request = request(store, 1);
        let writer = Writer::create(&at, &request).unwrap();
        let progress = AtomicU64::new(0);
        let error = store_files(&writer, &contents, threads, &progress);
        let message = text(&error.unwrap_err());
        assert!(message.contains("the disk is full"), "{message}");
        assert!(message.contains(at.to_str().unwrap()), "{message}");
        assert!(progress.into_inner() < 12 * CHUNK as u64);
        drop(writer);
        assert_eq!(names(&at), [""; 0]);
    }
    umount(&at).unwrap();
}
