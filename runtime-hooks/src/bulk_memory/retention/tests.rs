use std::fs;

use stasis_memory_store::{INDEX_FILE, Index, Tier};

use super::*;
use crate::bulk_memory::in_use;
use crate::bulk_memory::origin::tests::origin;
use crate::bulk_memory::stores::tests::{Node, node, store};

impl Node {
    fn left(&self) -> Vec<u64> {
        let left = all(&self.stores).unwrap();
        left.iter().map(Kept::completed_ns).collect()
    }

    /// A store with a pack of a MiB, whose image is at a path of its own.
    fn stored(&self, parent: &Path, container: &str, id: u64) -> PathBuf {
        let mut origin = origin(container, id);
        origin.image_path = self.directory.path().join(id.to_string());
        let directory = store(parent, id.into(), &origin);
        let pack = format!("stasis-memory-{}-1.pack", ImageId::new(id.into()));
        fs::write(directory.join(pack), vec![1; 1 << 20]).unwrap();
        directory
    }

    fn image(&self, path: u64, id: u64) {
        let index = Index {
            image_id: ImageId::new(id.into()),
            tier: Tier::Disk,
            packs: Vec::new(),
            processes: Vec::new(),
        };
        let path = self.directory.path().join(path.to_string());
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join(INDEX_FILE), index.encode()).unwrap();
    }
}

#[test]
fn by_itself_it_removes_only_what_was_replaced() {
    let node = node();
    for id in [1, 2, 3] {
        node.stored(&node.stores.disk, "c1", id);
    }
    node.stored(&node.stores.ram, "c1", 4);
    for (path, id) in [(1, 7), (2, 2), (4, 7)] {
        node.image(path, id);
    }
    let user = in_use::hold(&node.stores.disk.join(ImageId::new(1).to_string())).unwrap();
    tidy(&node.settings);
    assert_eq!(node.left(), [1, 2, 3], "one is in use");
    drop(user);
    tidy(&node.settings);
    assert_eq!(node.left(), [2, 3]);
}

#[test]
fn the_newest_of_each_container_are_kept() {
    let mut node = node();
    for id in 1..=5 {
        node.stored(&node.stores.disk, if id < 5 { "c1" } else { "c2" }, id);
    }
    // It is not on disk yet.
    node.stored(&node.stores.ram, "c1", 6);
    let used = node.stores.disk.join(ImageId::new(1).to_string());
    let user = in_use::hold(&used).unwrap();
    node.settings.bulk_memory.keep = 2;
    tidy(&node.settings);
    assert_eq!(node.left(), [1, 3, 4, 5, 6]);
    drop(user);
    tidy(&node.settings);
    assert_eq!(node.left(), [3, 4, 5, 6]);
}

#[test]
fn what_takes_too_much_goes_but_for_the_newest() {
    let mut node = node();
    let earlier = node.stored(&node.stores.disk, "c1", 1);
    let later = node.stored(&node.stores.disk, "c1", 2);
    // What both have takes room once.
    fs::write(earlier.join("stasis-memory-shared"), vec![1; 1 << 20]).unwrap();
    let shared = format!("stasis-memory-{}-7.pack", ImageId::new(1));
    fs::rename(earlier.join("stasis-memory-shared"), earlier.join(&shared)).unwrap();
    fs::hard_link(earlier.join(&shared), later.join(&shared)).unwrap();
    node.stored(&node.stores.disk, "c1", 3);
    node.stored(&node.stores.disk, "c2", 4);
    let mib = |count: u64| (count << 20) + (1 << 19);
    for (most, left) in [
        (mib(5), vec![1, 2, 3, 4]),
        (mib(4), vec![2, 3, 4]),
        (mib(3), vec![3, 4]),
        (1, vec![3, 4]),
    ] {
        node.settings.bulk_memory.max_bytes = most;
        tidy(&node.settings);
        assert_eq!(node.left(), left, "{most}");
    }
}

#[test]
fn an_image_that_stays_where_it_is_settles() {
    let node = node();
    let directory = node.stored(&node.stores.disk, "c1", 1);
    assert!(all(&node.stores).unwrap()[0].image == Image::Gone);
    let is_left_over = || why_left_over(&all(&node.stores).unwrap()[0]).is_some();
    assert!(!is_left_over(), "nobody has seen it there");
    node.image(1, 1);
    all(&node.stores).unwrap();
    assert!(
        Origin::read(&directory).unwrap().settled,
        "its checkpoint was in 1970"
    );
    fs::remove_dir_all(node.directory.path().join("1")).unwrap();
    assert!(is_left_over());
}
