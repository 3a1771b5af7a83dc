use super::*;
use crate::test_data::{Images, names};
use crate::{CHUNK, PacksIn};

#[test]
fn what_each_checkpoint_occupies_is_listed() {
    let images = Images::new();
    assert_eq!(list(&images.store().join("none")).unwrap(), []);
    images.dump(&images.request(PacksIn::Directory, 1), 1, &[3, 6]);
    images.dump(&images.request(PacksIn::Directory, 2), 2, &[3, 6, 9]);
    fs::create_dir(images.directory(3)).unwrap();
    let found = list(images.store()).unwrap();
    let ids: Vec<_> = found.iter().map(|stored| stored.image_id).collect();
    assert_eq!(ids, [1, 2, 3].map(ImageId::new));
    let chunks = |bytes: u64| bytes / CHUNK as u64;
    let sizes: Vec<_> = found
        .iter()
        .map(|stored| (chunks(stored.bytes), stored.complete))
        .collect();
    assert_eq!(sizes, [(2, true), (3, true), (0, false)]);
}

#[test]
fn only_what_the_store_made_is_removed() {
    let images = Images::new();
    images.dump(&images.request(PacksIn::Directory, 1), 1, &[1]);
    let directory = images.directory(1);
    let foreign = ["index.bak", "stasis-memory-1-0.pack", "stasis-memory-.pack"];
    for name in foreign {
        fs::write(directory.join(name), "precious").unwrap();
    }
    assert!(remove(&directory).is_err());
    let mut left = foreign.map(String::from);
    left.sort();
    assert_eq!(names(&directory), left);
    for name in foreign {
        fs::remove_file(directory.join(name)).unwrap();
    }
    remove(&directory).unwrap();
    remove(&directory).unwrap();
}

#[test]
fn a_link_to_a_directory_is_not_followed() {
    let images = Images::new();
    images.dump(&images.request(PacksIn::Directory, 1), 1, &[1]);
    std::os::unix::fs::symlink(images.directory(1), images.directory(2)).unwrap();
    assert!(remove(&images.directory(2)).is_err());
    images.verify(1, &[1]);
    assert_eq!(list(images.store()).unwrap().len(), 1);
}

#[test]
fn a_dump_that_came_to_nothing_is_discarded() {
    let images = Images::new();
    for packs_in in [PacksIn::Image, PacksIn::Directory] {
        images.dump(&images.request(packs_in, 1), 1, &[1]);
        fs::write(images.image(1).join("core-1.img"), "CRIU's").unwrap();
        discard(&images.image(1), Some(&images.directory(1))).unwrap();
        assert_eq!(names(&images.image(1)), ["core-1.img"]);
        assert_eq!(names(images.store()), ["image-1"]);
    }
}

/// No other process knows of the store, and it may be in memory.
#[test]
fn a_store_is_removed_although_its_image_cannot_be() {
    let images = Images::new();
    images.dump(&images.request(PacksIn::Directory, 1), 1, &[1]);
    let index = images.image(1).join(INDEX_FILE);
    fs::remove_file(&index).unwrap();
    // As unlink(2) fails on a disk that fails.
    fs::create_dir(&index).unwrap();
    discard(&images.image(1), Some(&images.directory(1))).unwrap_err();
    assert_eq!(names(images.store()), ["image-1"]);
}

#[test]
fn what_somebody_else_has_made_is_no_store() {
    let parent = tempfile::tempdir().unwrap();
    let [ours, link] = ["ours", "link"].map(|name| parent.path().join(name));
    for _ in 0..2 {
        make(&ours).unwrap();
    }
    std::os::unix::fs::symlink(&ours, &link).unwrap();
    make(&link).unwrap_err();
    std::os::unix::fs::chown(&ours, Some(1000), None).unwrap();
    make(&ours).unwrap_err();
}
