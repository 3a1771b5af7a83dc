use super::*;
use crate::test_data::{Images, names, request, store, text, verify};

use crate::{Buffer, PAGE, StoredPages, discard};

mod full_disk;

const PLACES: [PacksIn; 2] = [PacksIn::Image, PacksIn::Directory];

#[test]
fn what_is_stored_can_be_read_from_every_place_raw_and_compressed() {
    for images in [Images::new(), Images::in_memory()] {
        read_from_every_place(&images);
    }
}

fn read_from_every_place(images: &Images) {
    let seeds = [1, 2, 3];
    let mut sizes = Vec::new();
    for (id, packs_in) in (1..).zip(PLACES) {
        for (id, level) in [(id, None), (10 + id, Some(1))] {
            let mut request = images.request(packs_in, id);
            request.level = level;
            let mut writer = Writer::create(&images.image(id), &request).unwrap();
            let (process, report) = store(&writer, &seeds);
            verify(&writer.reader(), &process, &seeds);
            let index = writer.finish(std::slice::from_ref(&process)).unwrap();
            verify(&writer.reader(), &process, &seeds);
            drop(writer);
            assert_eq!(Index::read(&images.image(id)).unwrap().unwrap(), index);
            images.verify(id, &seeds);
            assert_eq!(index.packs.len(), 1);
            sizes.push(report.stored_bytes);
        }
    }
    // Random contents are stored as they are, the others in a third of the space.
    assert!(
        sizes.chunks(2).all(|pair| pair[1] < pair[0] * 3 / 4),
        "{sizes:?}"
    );
}

#[test]
fn a_pack_is_as_long_as_its_chunks_and_only_root_may_read_it() {
    use std::os::unix::fs::MetadataExt;
    let images = Images::new();
    let (index, report) = images.dump(&images.request(PacksIn::Directory, 1), 1, &[3]);
    let path = images.directory(1).join(index.packs[0].file_name());
    let metadata = path.metadata().unwrap();
    assert_eq!(metadata.len(), report.stored_bytes + PAGE as u64);
    assert_eq!(metadata.len(), index.packs[0].bytes);
    assert!(metadata.blocks() * 512 <= metadata.len() + (1 << 16));
    assert_eq!(metadata.mode() & 0o777, 0o600);
    assert_eq!(
        images.directory(1).metadata().unwrap().mode() & 0o777,
        0o700
    );
}

#[test]
fn equal_contents_are_stored_once() {
    let images = Images::new();
    let (index, report) = images.dump(&images.request(PacksIn::Image, 1), 1, &[3, 3, 3, 6]);
    let chunks = &index.processes[0].areas[0].chunks;
    assert_eq!(chunks[0].place, chunks[2].place);
    assert_eq!(report.reused_bytes, report.stored_bytes);
    images.verify(1, &[3, 3, 3, 6]);
}

#[test]
fn threads_store_side_by_side() {
    let images = Images::new();
    let mut writer =
        Writer::create(&images.image(1), &images.request(PacksIn::Directory, 1)).unwrap();
    let seeds = [[1, 2], [3, 4], [5, 6]];
    let mut processes: Vec<_> = std::thread::scope(|scope| {
        let threads = seeds.map(|seeds| {
            scope.spawn({
                let writer = &writer;
                move || store(writer, &seeds).0
            })
        });
        threads.map(|thread| thread.join().unwrap()).into()
    });
    for (pid, process) in (1..).zip(&mut processes) {
        process.pid = pid;
    }
    let index = writer.finish(&processes).unwrap();
    assert_eq!(index.packs.len(), 3);
    let reader = crate::Reader::open(&images.image(1), &index, Some(&images.directory(1))).unwrap();
    for (process, seeds) in index.processes.iter().zip(seeds) {
        verify(&reader, process, &seeds);
    }
}

#[test]
fn what_is_not_finished_or_is_discarded_leaves_nothing() {
    for packs_in in PLACES {
        let images = Images::new();
        let image = images.image(1);
        let mut writer = Writer::create(&image, &images.request(packs_in, 1)).unwrap();
        store(&writer, &[1]);
        drop(writer);
        assert_eq!(names(images.store()), ["image-1"]);
        assert_eq!(names(&image), [""; 0]);
        writer = Writer::create(&image, &images.request(packs_in, 1)).unwrap();
        let (process, _) = store(&writer, &[1]);
        writer.finish(&[process]).unwrap();
        drop(writer);
        discard(&image, images.request(packs_in, 1).directory.as_deref()).unwrap();
        assert_eq!(names(images.store()), ["image-1"]);
        assert_eq!(names(&image), [""; 0]);
    }
}

#[test]
fn a_second_dump_into_an_image_directory_replaces_the_first() {
    let images = Images::new();
    images.dump(&images.request(PacksIn::Image, 1), 1, &[1]);
    std::fs::write(images.image(1).join("index"), "somebody else's").unwrap();
    let request = request(None, 2);
    let writer = Writer::create(&images.image(1), &request).unwrap();
    assert_eq!(names(&images.image(1)), ["index"]);
    drop(writer);
    assert_eq!(names(&images.image(1)), ["index"]);
}

#[test]
fn an_index_is_refused_that_could_not_be_read_and_the_memory_is_still_there() {
    let images = Images::new();
    let mut writer =
        Writer::create(&images.image(1), &images.request(PacksIn::Directory, 1)).unwrap();
    let (process, _) = store(&writer, &[1]);
    let twice = [process.clone(), process.clone()];
    let error = writer.finish(&twice).unwrap_err();
    assert!(text(&error).contains("process 7 is impossible or listed twice"));
    let mut stream = writer.stream().unwrap();
    let mut buffer = Buffer::new();
    for impossible in [0, 1025] {
        assert!(
            stream
                .put(buffer.as_slice(), &StoredPages::All(impossible))
                .is_err()
        );
    }
    buffer.as_mut_slice()[0] = 1;
    stream.put(buffer.as_slice(), &StoredPages::All(1)).unwrap();
    drop(stream);
    let open = writer.finish(std::slice::from_ref(&process)).unwrap_err();
    assert!(text(&open).contains("is still being written"), "{open}");
    assert!(Index::read(&images.image(1)).unwrap().is_none());
    verify(&writer.reader(), &process, &[1]);
}

#[test]
fn a_directory_that_is_there_already_is_left_alone() {
    let images = Images::new();
    images.dump(&images.request(PacksIn::Directory, 1), 1, &[1]);
    let error =
        Writer::create(&images.image(2), &images.request(PacksIn::Directory, 1)).unwrap_err();
    assert!(text(&error).contains("File exists"), "{error}");
    images.verify(1, &[1]);
}

/// Neither a flipped bit nor a checksum that others share makes a checkpoint refer to contents that
/// are not its own.
#[test]
fn a_checksum_alone_is_not_trusted() {
    let images = Images::new();
    let request = images.request(PacksIn::Directory, 1);
    let mut writer = Writer::create(&images.image(1), &request).unwrap();
    let (process, _) = store(&writer, &[3]);
    let other = crate::test_data::content(6);
    let key = (crate::Checksum::of(&other), other.len());
    writer.remember(key, process.areas[0].chunks[0].place);
    let (process, report) = store(&writer, &[6]);
    assert_eq!(report.reused_bytes, 0);
    assert!(writer.not_reused().unwrap().contains("is damaged at"));
    writer.finish(&[process]).unwrap();
    images.verify(1, &[6]);
}
