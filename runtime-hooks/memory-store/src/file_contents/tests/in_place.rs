//! Contents whose file is a pack from the beginning.

use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use stasis_linux::memory_file::is_marked;

use super::*;
use crate::{Checksum, EarlyChecksums, IN_PLACE_OFFSET, ImageId, Pack, create_pack};

/// Puts contents into packs of a checkpoint, as the driver leaves them.
fn packed(directory: &Path, id: u128, held: Vec<Held>) -> Vec<Held> {
    let packed = |(number, held): (u16, Held)| {
        let bytes = held.content.len() as u64;
        let file = create_pack(directory, ImageId::new(id), number, 2 * bytes).unwrap();
        file.write_all_at(&held.content, IN_PLACE_OFFSET).unwrap();
        file.set_len(IN_PLACE_OFFSET + bytes).unwrap();
        Held {
            offset: IN_PLACE_OFFSET,
            file,
            ..held
        }
    };
    (0..).zip(held).map(packed).collect()
}

/// The areas that can be mapped as they are stored, of all.
fn in_place(image: &Path, request: &DumpRequest) -> (usize, usize) {
    let index = Index::read(image).unwrap().unwrap();
    let reader = Reader::open(image, &index, request.directory.as_deref()).unwrap();
    let found = index.areas().filter(|area| reader.in_place(area).is_some());
    (found.count(), index.areas().count())
}

/// Verifies contents that can be mapped, and loads the rest.
fn verify(image: &Path, request: &DumpRequest) -> Result<(), StoreError> {
    let index = Index::read(image).unwrap().unwrap();
    let reader = Reader::open(image, &index, request.directory.as_deref()).unwrap();
    let mut contents = Vec::new();
    for process in &index.processes {
        for area in &process.areas {
            let (file, offset) = reader.in_place(area).unwrap();
            contents.push(FileContents {
                pid: process.pid,
                start: area.start,
                file,
                offset,
                bytes: area.bytes,
            });
        }
    }
    let progress = AtomicU64::new(0);
    reader.load_files(&index.processes, &contents, THREADS, &progress)?;
    assert_eq!(
        progress.into_inner(),
        index.areas().map(|area| area.bytes).sum()
    );
    Ok(())
}

/// A container that has one opens it anew with the rights of root.
#[test]
fn who_is_given_one_does_not_open_it_for_writing() {
    let images = Images::in_memory();
    let (image, request) = (images.image(1), images.request(PacksIn::Directory, 1));
    let held = packed(&images.directory(1), 1, held());
    let (index, _) = dump(&image, &request, &held);
    let reader = Reader::open(&image, &index, request.directory.as_deref()).unwrap();
    for area in index.areas() {
        let (own, offset) = reader.in_place(area).unwrap();
        let (given, same) = reader.to_map(area).unwrap().unwrap();
        let id = |file: &File| {
            file.metadata()
                .map(|file| (file.dev(), file.ino()))
                .unwrap()
        };
        assert_eq!((id(&given), same), (id(own), offset));
        assert!(is_marked(&given).unwrap());
        let anew = |file: &File| {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            File::options().write(true).open(path)
        };
        let refused = anew(&given).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        assert!(anew(own).is_ok(), "root may write to it elsewhere");
    }
}

#[test]
fn they_stay_where_they_are() {
    let images = Images::in_memory();
    let (image, request) = (images.image(1), images.request(PacksIn::Directory, 1));
    let held = packed(&images.directory(1), 1, held());
    let (index, report) = dump(&image, &request, &held);
    assert_eq!(report.stored_bytes, bytes(&held));
    assert_eq!(index.packs.len(), held.len(), "nothing was copied");
    assert_eq!(in_place(&image, &request), (4, 4));
    verify(&image, &request).unwrap();
    // As from any other pack.
    let loaded = load(&image, &request, &held).unwrap();
    assert!(loaded.iter().all(Held::is_whole));
    let at = IN_PLACE_OFFSET + CHUNK as u64 + 5000;
    held[0]
        .file
        .write_all_at(&[held[0].content[CHUNK + 5000] ^ 1], at)
        .unwrap();
    let message = text(&verify(&image, &request).unwrap_err());
    assert!(
        message.contains("of process 7 cannot be read from"),
        "{message}"
    );
}

/// Checksums are used that are right where a sample is taken; a wrong one outside of the sample
/// shows that they are used at all.
#[test]
fn checksums_that_were_taken_before_are_used_if_a_sample_is_right() {
    const CHUNKS: usize = 130;
    let chunks: Vec<_> = (0..CHUNKS).map(|_| content(3)).collect();
    for (id, wrong) in [(1, 1), (2, 2)] {
        let images = Images::in_memory();
        let (image, request) = (images.image(id), images.request(PacksIn::Directory, id));
        let held = vec![Held::new(9, START, 0, chunks.concat())];
        let held = packed(&images.directory(id), id, held);
        let mut checksums: Vec<_> = held[0].content.chunks(CHUNK).map(Checksum::of).collect();
        checksums[wrong] = Checksum(1);
        EarlyChecksums::from(checksums)
            .leave(u64::MAX, &images.directory(id), ImageId::new(id), 0)
            .unwrap();
        dump(&image, &request, &held);
        assert!(
            !names(&images.directory(id))
                .iter()
                .any(|name| name.ends_with(".checksums"))
        );
        // Every second chunk is in the sample.
        assert_eq!(verify(&image, &request).is_err(), wrong == 1);
    }
}

#[test]
fn zeros_that_are_no_more_are_found() {
    let images = Images::in_memory();
    let (image, request) = (images.image(1), images.request(PacksIn::Directory, 1));
    let zeros = Held::new(9, START, 0, vec![0; CHUNK + PAGE]);
    let held = packed(&images.directory(1), 1, vec![zeros]);
    dump(&image, &request, &held);
    verify(&image, &request).unwrap();
    held[0]
        .file
        .write_all_at(&[1], IN_PLACE_OFFSET + 7000)
        .unwrap();
    assert!(verify(&image, &request).is_err());
}

#[test]
fn a_file_that_is_no_pack_of_this_checkpoint_is_copied() {
    let images = Images::in_memory();
    let strange = packed(&images.directory(9), 9, held());
    let (image, request) = (images.image(1), images.request(PacksIn::Directory, 1));
    let (index, _) = dump(&image, &request, &strange);
    let is_own = |pack: &Pack| pack.creator == request.image_id;
    assert!(index.packs.iter().all(is_own));
    assert!(index.packs.len() <= THREADS.get());
    let disk = packed(&images.directory(8), 8, held());
    let (image, request) = (images.image(2), images.request(PacksIn::Directory, 2));
    dump(&image, &request, &disk);
    let loaded = load(&image, &request, &disk).unwrap();
    assert!(loaded.iter().all(Held::is_whole));
}
