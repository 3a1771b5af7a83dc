pub(crate) mod fixtures;

use stasis_memory_store::STORE_INDEX_FILE;

use std::fs;

use super::*;
use crate::bulk_memory::origin::tests::origin;
use fixtures::node;

/// Contents with one pack.
pub(crate) fn store(parent: &Path, id: u128, origin: &Origin) -> PathBuf {
    let directory = of_image(parent, ImageId::new(id));
    fs::create_dir(&directory).unwrap();
    let pack = format!("stasis-memory-{}-0.pack", ImageId::new(id));
    fs::write(directory.join(pack), [1; 100]).unwrap();
    fs::write(directory.join(STORE_INDEX_FILE), "").unwrap();
    origin.write(&directory).unwrap();
    directory
}

#[test]
fn contents_are_listed_in_the_order_of_their_checkpoints_and_removed_by_their_id() {
    let node = node();
    let places = Places::of(&node.settings);
    store(&node.apart, 1, &origin("c1", "2026-11-26T10:00:02Z"));
    store(&node.apart, 2, &origin("c1", "2026-11-26T10:00:01Z"));
    fs::create_dir(of_image(&node.apart, ImageId::new(3))).unwrap();
    let ids = || -> Vec<_> {
        let all = all_in(&node.apart).unwrap();
        all.iter().map(|store| store.stored.image_id).collect()
    };
    assert_eq!(ids(), [2, 1, 3].map(ImageId::new));
    for _ in 0..2 {
        assert_eq!(places.remove(ImageId::new(1)).unwrap(), Removed::Yes);
    }
    assert_eq!(ids(), [2, 3].map(ImageId::new));
}

#[test]
fn a_tmpfs_is_known_by_its_descriptor() {
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    assert!(in_memory(&memory.path().join("new")));
    let disk = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    assert!(!in_memory(disk.path()));
    // A link is no directory of ours.
    std::os::unix::fs::symlink(memory.path(), disk.path().join("link")).unwrap();
    assert!(!in_memory(&disk.path().join("link")));
}
