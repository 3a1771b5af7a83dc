use super::*;
use crate::PAGE;
use crate::test_data::{Images, PID, START, text};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// The only pack of a checkpoint, which is in its image directory.
fn pack_path(images: &Images, index: &Index, id: u128) -> PathBuf {
    images.image(id).join(index.packs[0].file_name())
}

fn portable(images: &Images, id: u128, seeds: &[u64]) -> (Index, PathBuf) {
    let (index, _) = images.dump(&images.request(PacksIn::Image, id), id, seeds);
    let path = pack_path(images, &index, id);
    (index, path)
}

fn open_error(images: &Images, index: &Index, id: u128) -> String {
    text(&Reader::open(&images.image(id), index, None).unwrap_err())
}

#[test]
fn a_flipped_bit_is_found_and_the_message_names_file_and_chunk() {
    for level in [None, Some(1)] {
        let images = Images::new();
        let mut request = images.request(PacksIn::Image, 1);
        request.level = level;
        let (index, _) = images.dump(&request, 1, &[1, 2, 3]);
        let chunks = &index.processes[0].areas[0].chunks;
        let path = pack_path(&images, &index, 1);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        for chunk in chunks {
            let at = chunk.place.offset + u64::from(chunk.place.bytes) / 2;
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 8], at).unwrap();
            let reader = Reader::open(&images.image(1), &index, None).unwrap();
            let mut buffer = Buffer::new();
            for each in chunks {
                let loaded = reader.load(PID, START, each, &mut buffer);
                let handed_on = loaded.and_then(|loaded| loaded.hand_on(5000, |_, _| Ok(())));
                let loaded = reader.load(PID, START, each, &mut buffer);
                let read = loaded.and_then(Loaded::verified);
                assert_eq!(read.is_ok(), each.number != chunk.number);
                assert_eq!(read.is_ok(), handed_on.is_ok());
                let Err(error) = read else { continue };
                let number = each.number;
                let names = format!("chunk {number} of the area at {START:#x} of process {PID} ");
                let message = text(&error);
                assert!(message.starts_with(&names), "{message}");
                assert!(message.contains(path.to_str().unwrap()), "{message}");
                assert!(message.contains("restore from another"), "{message}");
            }
            file.write_all_at(&byte, at).unwrap();
        }
    }
}

/// As on a file server that is away, or without memory for the read.
#[test]
fn contents_that_cannot_be_read_are_not_called_damaged() {
    let images = Images::new();
    let (index, path) = portable(&images, 1, &[1]);
    let chunk = &index.processes[0].areas[0].chunks[0];
    let mut buffer = Buffer::new();
    let mut loaded = |file: File| {
        let pack = PackFile::new(path.clone(), file);
        let reader = Reader::of(vec![Arc::new(pack)]);
        let loaded = reader.load(PID, START, chunk, &mut buffer);
        loaded.and_then(|loaded| loaded.verified().map(drop))
    };
    let unreadable = OpenOptions::new().write(true).open(&path).unwrap();
    let error = loaded(unreadable).unwrap_err();
    assert!(
        matches!(&error, StoreError::Io { path: at, .. } if *at == path),
        "{error}"
    );
    loaded(File::open(&path).unwrap()).unwrap();
    let short = tempfile::tempfile().unwrap();
    let error = loaded(short).unwrap_err();
    assert!(matches!(error, StoreError::Chunk { .. }), "{error}");
}

/// Some KiB that would become a GiB: no more is decompressed than a chunk has.
#[test]
fn a_chunk_does_not_grow_beyond_its_pages() {
    let images = Images::new();
    let (mut index, path) = portable(&images, 1, &[1]);
    let pack = OpenOptions::new().write(true).open(&path).unwrap();
    let end = fs::metadata(&path).unwrap().len().next_multiple_of(1 << 20);
    pack.set_len(end).unwrap();
    let zeros = || std::io::Read::take(std::io::repeat(0), 1 << 30);
    let one = zstd::bulk::compress(&[0; crate::CHUNK], 1).unwrap();
    let bombs = [
        zstd::stream::encode_all(zeros(), 1).unwrap(),
        one.repeat(200),
    ];
    for bomb in bombs {
        pack.set_len(end).unwrap();
        pack.write_all_at(&bomb, end).unwrap();
        pack.set_len(end + (4 << 20)).unwrap();
        let chunk = &mut index.processes[0].areas[0].chunks[0];
        chunk.place = ChunkLocation {
            offset: end,
            bytes: u32::try_from(bomb.len()).unwrap(),
            encoding: Encoding::Zstd,
            ..chunk.place
        };
        let reader = Reader::open(&images.image(1), &index, None).unwrap();
        let chunk = &index.processes[0].areas[0].chunks[0];
        let mut buffer = Buffer::new();
        let error = reader.load(PID, START, chunk, &mut buffer).unwrap_err();
        let message = text(&error);
        assert!(message.contains("cannot be decompressed"), "{message}");
    }
}

#[test]
fn a_missing_pack_is_named() {
    let images = Images::new();
    let (index, path) = portable(&images, 1, &[1]);
    fs::remove_file(&path).unwrap();
    let message = open_error(&images, &index, 1);
    assert!(message.contains(&format!("{} is missing", path.display())));
    let chunk = format!("chunk 0 of the area at {START:#x} of process {PID} is in it");
    assert!(message.ends_with(&chunk), "{message}");
}

#[test]
fn swapped_packs_are_found() {
    let images = Images::new();
    let (index, path) = portable(&images, 1, &[1]);
    let (_, other) = portable(&images, 2, &[1]);
    fs::copy(other, &path).unwrap();
    let message = open_error(&images, &index, 1);
    assert!(message.contains("the name of another pack"), "{message}");
    assert!(message.contains("chunk 0"), "{message}");
}

#[test]
fn a_pack_that_is_cut_off_or_changed_in_its_header_is_found() {
    let images = Images::new();
    let (index, path) = portable(&images, 1, &[1]);
    let whole = fs::read(&path).unwrap();
    for (length, says) in [
        (whole.len() - 1, "bytes of it are needed and it has"),
        (4096, "bytes of it are needed and it has 4096"),
        (4095, "it is not a pack"),
        (0, "it is not a pack"),
    ] {
        fs::write(&path, &whole[..length]).unwrap();
        let message = open_error(&images, &index, 1);
        assert!(message.contains(says), "{length}: {message}");
    }
    for (at, says) in [
        (0, "it is not a pack"),
        (8, "this stasis reads version 1 alone"),
        (12, "another pack"),
        (20, "another pack"),
        (4000, "damaged itself"),
    ] {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        fs::write(&path, &changed).unwrap();
        let message = open_error(&images, &index, 1);
        assert!(message.contains(says), "{at}: {message}");
    }
}

#[test]
fn a_pack_that_is_cut_off_after_it_was_opened_is_found() {
    let images = Images::new();
    let (index, path) = portable(&images, 1, &[3]);
    let reader = Reader::open(&images.image(1), &index, None).unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(8192).unwrap();
    let chunk = &index.processes[0].areas[0].chunks[0];
    let mut buffer = Buffer::new();
    let error = reader.load(PID, START, chunk, &mut buffer);
    let message = text(&error.unwrap_err());
    assert!(message.contains("the file ends at 8192"), "{message}");
}

#[test]
fn links_and_what_is_no_file_are_no_packs() {
    let images = Images::new();
    let (index, path) = portable(&images, 1, &[1]);
    let elsewhere = images.store().join("elsewhere");
    fs::rename(&path, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
    assert!(open_error(&images, &index, 1).contains("is not a regular file"));
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(open_error(&images, &index, 1).contains("is not a regular file"));
}

#[test]
fn a_place_that_was_never_checked_is_an_error() {
    let images = Images::new();
    let (index, _) = portable(&images, 1, &[3]);
    let reader = Reader::open(&images.image(1), &index, None).unwrap();
    let good = &index.processes[0].areas[0].chunks[0];
    let mut chunks = vec![good.clone(); 5];
    chunks[0].place.pack = 9;
    chunks[1].place.bytes = u32::MAX;
    chunks[2].pages = crate::StoredPages::All(u16::MAX);
    chunks[3].place.encoding = Encoding::Zstd;
    chunks[4].place.offset = u64::MAX / 2;
    let mut buffer = Buffer::new();
    for chunk in chunks {
        let read = reader.load(PID, START, &chunk, &mut buffer);
        assert!(read.is_err(), "{chunk:?}");
    }
}

#[test]
fn a_pack_that_is_not_in_the_page_cache_is_read_past_it() {
    let images = Images::new();
    images.dump(&images.request(PacksIn::Directory, 1), 1, &[1, 2, 3]);
    images.verify(1, &[1, 2, 3]);
    let index = Index::read(&images.image(1)).unwrap().unwrap();
    let path = images.directory(1).join(index.packs[0].file_name());
    // Where the file system supports it, or this test shows nothing.
    let file = fs::File::open(&path).unwrap();
    let cached = crate::pack::page_cache::has_most_of(&file);
    if crate::pack::set_direct(&file) {
        assert_ne!(
            cached,
            Some(true),
            "neither writing nor reading it filled the cache"
        );
    }
}

#[test]
fn parts_are_the_content_and_one_that_is_not_taken_is_the_last() {
    let images = Images::new();
    let (index, _) = portable(&images, 1, &[1]);
    let reader = Reader::open(&images.image(1), &index, None).unwrap();
    let chunk = &index.processes[0].areas[0].chunks[0];
    let (mut buffer, mut other) = (Buffer::new(), Buffer::new());
    let loaded = reader.load(PID, START, chunk, &mut buffer).unwrap();
    let whole = loaded.verified().unwrap();
    let mut parts = Vec::new();
    let loaded = reader.load(PID, START, chunk, &mut other).unwrap();
    let taken: Result<(), StoreError> = loaded.hand_on(3 * PAGE, |part, runs| {
        assert_eq!(part.len(), runs.iter().map(|run| run.bytes).sum::<usize>());
        parts.extend_from_slice(part);
        Ok(())
    });
    taken.unwrap();
    assert!(parts == whole);
    let mut count = 0;
    let loaded = reader.load(PID, START, chunk, &mut other).unwrap();
    let refused = loaded.hand_on(PAGE, |_, _| {
        count += 1;
        let what = "enough".to_owned();
        Err(StoreError::Impossible { what })
    });
    assert!(matches!(refused, Err(StoreError::Impossible { .. })));
    assert_eq!(count, 1);
}
