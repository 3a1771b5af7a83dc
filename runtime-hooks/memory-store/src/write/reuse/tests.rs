use crate::test_data::{Images, names, store};
use crate::{CHUNK, Compression, PAGE};
use crate::{DumpRequest, Tier, Writer, remove};
use std::fs::OpenOptions;

fn request(images: &Images, id: u128, earlier: u128) -> DumpRequest {
    let mut request = images.request(Tier::Disk, id);
    request.earlier = Some(images.directory(earlier));
    request
}

#[test]
fn only_what_has_changed_is_stored_again_and_each_checkpoint_can_be_removed() {
    let images = Images::new();
    images.dump(&images.request(Tier::Disk, 1), 1, &[3, 6, 9]);
    let (second, report) = images.dump(&request(&images, 2, 1), 2, &[3, 12, 9]);
    assert_eq!(report.stored_bytes * 2, report.reused_bytes);
    assert_eq!(second.packs.len(), 2);
    let (third, report) = images.dump(&request(&images, 3, 2), 3, &[3, 12, 9]);
    assert_eq!(report.stored_bytes, 0);
    assert_eq!(third.packs.len(), 2);
    remove(&images.directory(1)).unwrap();
    images.verify(2, &[3, 12, 9]);
    remove(&images.directory(2)).unwrap();
    images.verify(3, &[3, 12, 9]);
    remove(&images.directory(3)).unwrap();
    assert_eq!(names(images.store()), ["image-1", "image-2", "image-3"]);
}

#[test]
fn packs_that_are_not_used_do_not_stay() {
    let images = Images::new();
    images.dump(&images.request(Tier::Disk, 1), 1, &[3, 6]);
    let (index, report) = images.dump(&request(&images, 2, 1), 2, &[9, 12]);
    assert_eq!((index.packs.len(), report.reused_bytes), (1, 0));
    let files = [String::from("index"), index.packs[0].file_name()];
    assert_eq!(names(&images.directory(2)), files);
}

#[test]
fn a_pack_with_little_that_is_still_used_is_let_go() {
    let images = Images::new();
    let seeds = [3, 6, 9, 12, 15];
    images.dump(&images.request(Tier::Disk, 1), 1, &seeds);
    // One fifth of the first pack.
    let (index, _) = images.dump(&request(&images, 2, 1), 2, &[3, 18, 21]);
    assert_eq!(index.packs.len(), 2);
    let (index, report) = images.dump(&request(&images, 3, 2), 3, &[3, 18, 21]);
    assert_eq!(index.packs.len(), 2);
    assert_eq!(report.reused_bytes, 2 * report.stored_bytes);
    let creators: Vec<_> = index.packs.iter().map(|pack| pack.creator).collect();
    assert!(!creators.contains(&crate::ImageId::new(1)));
    images.verify(3, &[3, 18, 21]);
}

#[test]
fn what_is_missing_or_broken_is_stored_again() {
    let images = Images::new();
    let (index, _) = images.dump(&images.request(Tier::Disk, 1), 1, &[3]);
    let pack = images.directory(1).join(index.packs[0].file_name());
    let index_file = images.directory(1).join("index");
    let whole = std::fs::read(&index_file).unwrap();
    let breaks: [(&str, &dyn Fn()); 4] = [
        ("bytes of it are needed", &|| {
            let file = OpenOptions::new().write(true).open(&pack).unwrap();
            file.set_len(PAGE as u64).unwrap();
        }),
        ("cannot link", &|| std::fs::remove_file(&pack).unwrap()),
        ("is damaged", &|| {
            std::fs::write(&index_file, &whole[..whole.len() - 1]).unwrap();
        }),
        ("is missing", &|| remove(&images.directory(1)).unwrap()),
    ];
    for (id, (says, break_it)) in (2..).zip(breaks) {
        break_it();
        let mut writer = Writer::create(&images.image(id), &request(&images, id, 1)).unwrap();
        let why = writer.not_reused().unwrap_or_default();
        assert!(why.contains(says), "{why}");
        let (process, report) = store(&writer, &[3]);
        assert_eq!(report.reused_bytes, 0);
        let index = writer.finish(&[process]).unwrap();
        assert_eq!(index.packs.len(), 1);
        drop(writer);
        images.verify(id, &[3]);
    }
}

/// Neither a flipped bit nor a checksum that others share makes a checkpoint refer to contents that
/// are not its own.
#[test]
fn what_differs_is_stored_again() {
    for level in [None, Some(1)] {
        let images = Images::new();
        let compression = level.map(|level| Compression { level });
        let mut first = images.request(Tier::Disk, 1);
        first.compression = compression;
        let (index, _) = images.dump(&first, 1, &[3, 4, 5]);
        let place = index.processes[0].areas[0].chunks[1].place;
        let pack = images.directory(1).join(index.packs[0].file_name());
        let mut bytes = std::fs::read(&pack).unwrap();
        bytes[usize::try_from(place.offset).unwrap() + 1000] ^= 4;
        std::fs::write(&pack, bytes).unwrap();

        let mut second = request(&images, 2, 1);
        second.compression = compression;
        let mut writer = Writer::create(&images.image(2), &second).unwrap();
        let (process, report) = store(&writer, &[3, 4, 5, 4]);
        let why = writer.not_reused().unwrap();
        assert!(why.contains("is damaged at"), "{why}");
        assert!(
            report.stored_bytes > 0 && report.reused_bytes > 0,
            "{report:?}"
        );
        // Once, although it is there twice.
        let chunks = &process.areas[0].chunks;
        assert_eq!(chunks[1].place, chunks[3].place);
        writer.finish(&[process]).unwrap();
        drop(writer);
        images.verify(2, &[3, 4, 5, 4]);
    }
}

#[test]
fn a_checksum_alone_is_not_trusted() {
    let images = Images::new();
    let mut writer = Writer::create(&images.image(1), &images.request(Tier::Disk, 1)).unwrap();
    let (process, _) = store(&writer, &[3]);
    let other = crate::test_data::content(6);
    let key = (crate::Checksum::of(&other), other.len());
    writer.remember(key, process.areas[0].chunks[0].place);
    let (process, report) = store(&writer, &[6]);
    assert_eq!(report.reused_bytes, 0);
    writer.finish(&[process]).unwrap();
    images.verify(1, &[6]);
}

#[test]
fn a_dump_that_fails_leaves_the_earlier_one_as_it_was() {
    let images = Images::new();
    images.dump(&images.request(Tier::Disk, 1), 1, &[3, 6]);
    let writer = Writer::create(&images.image(2), &request(&images, 2, 1)).unwrap();
    store(&writer, &[3, 9]);
    drop(writer);
    images.verify(1, &[3, 6]);
    assert!(!images.directory(2).exists());
}

#[test]
fn a_long_line_of_checkpoints_does_not_grow() {
    let images = Images::new();
    let mut seeds = [3, 6, 9, 12];
    images.dump(&images.request(Tier::Disk, 0), 0, &seeds);
    let mut random = fastrand::Rng::with_seed(1);
    for (id, fresh) in (1..40).zip(11..) {
        seeds[random.usize(..4)] = 3 * fresh;
        let (index, report) = images.dump(&request(&images, id, id - 1), id, &seeds);
        assert!(index.packs.len() <= 4);
        assert!(report.stored_bytes <= 2 * CHUNK as u64, "{report:?}");
        remove(&images.directory(id - 1)).unwrap();
        let stored = &crate::list(images.store()).unwrap()[0];
        // A quarter of each pack is in use, or it is let go.
        assert!(stored.own_bytes <= 16 * CHUNK as u64);
        images.verify(id, &seeds);
    }
}
