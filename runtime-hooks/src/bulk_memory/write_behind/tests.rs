use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use stasis_linux::file::Durability;
use stasis_memory_store::{ORIGIN_FILE, Tier};

use super::*;
use crate::bulk_memory::lost::lost_in;
use crate::bulk_memory::origin::Origin;
use crate::bulk_memory::origin::tests::origin;
use crate::bulk_memory::restore::FoundMemory;
use crate::bulk_memory::scrub::Scrub;
use crate::bulk_memory::scrub::tests::{STORED, flip_bit_of, store_holes};
use crate::bulk_memory::stores::tests::{Node, node, store};
use crate::image::manifest::{Manifest, StoredMemory};

fn pack(creator: u128, stream: u16) -> String {
    format!("stasis-memory-{}-{stream}.pack", ImageId::new(creator))
}

impl Node {
    /// A checkpoint in memory alone, with a large pack.
    fn checkpoint(&self, id: u128, origin: &Origin) -> (PathBuf, Vec<u8>) {
        let from = store(&self.stores.ram, id, origin);
        let large: Vec<u8> = (0..251).cycle().take((9 << 20) + 77).collect();
        fs::write(from.join(pack(id, 9)), &large).unwrap();
        pending::record(&self.stores, ImageId::new(id), origin).unwrap();
        (from, large)
    }

    fn copy(&self) -> Vec<Outcome> {
        let tried = copy_all(&self.settings, &mut HashSet::new()).into_iter();
        tried.map(|(_, outcome)| outcome).collect()
    }

    fn on_disk(&self, id: u128) -> PathBuf {
        self.stores.disk.join(ImageId::new(id).to_string())
    }

    fn log(&self) -> Vec<Value> {
        let log = self.settings.paths.log_dir.join("operations.log");
        let text = fs::read_to_string(log).unwrap_or_default();
        let lines = text.lines().map(serde_json::from_str);
        lines.collect::<Result<_, _>>().unwrap()
    }

    fn names(&self) -> Vec<String> {
        let names = stores::names_in(&self.stores.disk).unwrap().into_iter();
        let mut names: Vec<_> = names.map(|(name, _)| name).collect();
        names.sort();
        names
    }
}

#[test]
fn all_is_copied_and_what_is_there_is_linked() {
    use std::os::unix::fs::MetadataExt;
    let node = node();
    let earlier = store(&node.stores.disk, 1, &origin("c1", 1));
    let (from, large) = node.checkpoint(2, &origin("c1", 2));
    fs::write(from.join(pack(1, 9)), "earlier").unwrap();
    fs::write(earlier.join(pack(1, 9)), "earlier").unwrap();

    let outcomes = node.copy();
    let written = large.len() as u64 + 100;
    let all = Copied {
        bytes: written,
        there: 7,
    };
    assert!(matches!(&outcomes[..], [Outcome::Copied(copied)] if *copied == all));
    let to = node.on_disk(2);
    assert_eq!(fs::read(to.join(pack(2, 9))).unwrap(), large);
    assert_eq!(to.join(pack(1, 9)).metadata().unwrap().nlink(), 2);
    let count = |path: &Path| fs::read_dir(path).unwrap().count();
    assert_eq!(count(&from), count(&to));
    let log = node.log();
    assert_eq!(log[0]["operation"], "durable");
    assert!(log[0]["phases"][0]["seconds"].as_f64().unwrap() > 0.0);
    assert!(node.copy().is_empty(), "it is pending no more");
}

/// What a copy that was killed leaves, step by step.
#[test]
fn a_copy_goes_on_where_a_killed_one_was() {
    let steps: [fn(&Path, &Path); 5] = [
        |_, partial| fs::remove_dir_all(partial).unwrap(),
        |_, _| {},
        |_, partial| fs::write(partial.join(format!(".{}.new", pack(2, 9))), "begun").unwrap(),
        |from, partial| {
            fs::copy(from.join(pack(2, 9)), partial.join(pack(2, 9))).unwrap();
        },
        |from, partial| {
            for (name, path) in stores::names_in(from).unwrap() {
                fs::copy(path, partial.join(name)).unwrap();
            }
        },
    ];
    let mut there = Vec::new();
    for step in steps {
        let node = node();
        let (from, large) = node.checkpoint(2, &origin("c1", 2));
        step(&from, &node.stores.partial_of(ImageId::new(2)));
        let outcomes = node.copy();
        let [Outcome::Copied(copied)] = &outcomes[..] else {
            panic!("{outcomes:?}");
        };
        there.push(copied.there);
        assert_eq!(copied.bytes + copied.there, large.len() as u64 + 100);
        assert_eq!(fs::read(node.on_disk(2).join(pack(2, 9))).unwrap(), large);
        assert_eq!(node.names().len(), 1);
        assert_eq!(fs::read_dir(node.on_disk(2)).unwrap().count(), 4);
    }
    let large = (9 << 20) + 77;
    assert_eq!(there, [0, 0, 0, large, large + 100]);
}

#[test]
fn a_copy_that_fails_stays_pending_and_is_logged_once() {
    let node = node();
    let (from, _) = node.checkpoint(2, &origin("c1", 2));
    fs::create_dir(from.join("a-directory")).unwrap();
    let mut logged = HashSet::new();
    for _ in 0..2 {
        let tried = copy_all(&node.settings, &mut logged);
        assert!(matches!(&tried[..], [(_, Outcome::Failed(_))]), "{tried:?}");
    }
    let log = node.log();
    assert_eq!(log.len(), 1, "{log:?}");
    assert_eq!(log[0]["kind"], "image-directory");
    assert_eq!(log[0]["state"], "unharmed");
    assert!(log[0]["error"].as_str().unwrap().contains("is not on disk"));
    fs::remove_dir(from.join("a-directory")).unwrap();
    assert!(matches!(node.copy()[..], [Outcome::Copied(_)]));
    assert!(node.on_disk(2).is_dir());
}

#[test]
fn what_is_removed_or_not_whole_is_not_copied() {
    let node = node();
    let (from, _) = node.checkpoint(2, &origin("c1", 2));
    fs::remove_file(from.join(ORIGIN_FILE)).unwrap();
    assert!(
        node.copy().is_empty(),
        "nobody knows yet whether it is good"
    );
    let pending = Pending {
        image_id: ImageId::new(2),
        origin: origin("c1", 2),
        from: from.clone(),
    };
    fs::remove_dir_all(from).unwrap();
    assert!(matches!(
        copy_one(&node.settings, &node.stores, &pending),
        Outcome::Gone
    ));
    assert!(node.names().is_empty(), "{:?}", node.names());
}

#[test]
fn what_a_restart_has_lost_is_said_until_there_is_a_newer_one() {
    let node = node();
    let mut before = origin("c1", 2);
    before.boot_id = Some("another".to_owned());
    let (from, _) = node.checkpoint(2, &before);
    fs::remove_dir_all(from).unwrap();
    let partial = node.stores.partial_of(ImageId::new(2));
    fs::write(partial.join(pack(2, 9)), "a part").unwrap();
    // Its memory may be where other settings have it.
    let of_this_boot = origin("c2", 3);
    let kept = node.stores.partial_of(ImageId::new(3));
    fs::create_dir(&kept).unwrap();
    of_this_boot.write(&kept, Durability::Volatile).unwrap();

    take_up(&node.settings);
    take_up(&node.settings);
    let lost = lost_in(&node.stores).unwrap();
    assert_eq!(lost.len(), 1);
    assert_eq!(lost[0].origin, before);
    assert_eq!(fs::read_dir(&lost[0].directory).unwrap().count(), 1);
    let log = node.log();
    assert_eq!(log.len(), 1, "{log:?}");
    assert_eq!(log[0]["kind"], "memory-missing");
    assert!(log[0]["error"].as_str().unwrap().contains("/images/1"));
    assert!(kept.is_dir() && !partial.exists());

    node.checkpoint(4, &origin("c1", 4));
    assert!(matches!(node.copy()[..], [Outcome::Copied(_)]));
    assert!(lost_in(&node.stores).unwrap().is_empty());
    assert!(node.directory.path().exists());
}

#[test]
fn one_process_has_the_turn() {
    let node = node();
    let turn = take_turn(&node.stores.ram).unwrap();
    assert!(turn.is_some() && take_turn(&node.stores.ram).unwrap().is_none());
    node.checkpoint(2, &origin("c1", 2));
    let other = WriteBehind {
        bulk_memory: node.settings.bulk_memory.clone(),
        paths: node.settings.paths.clone(),
    };
    other.run().unwrap();
    assert!(!node.on_disk(2).exists());
    drop(turn);
    let ours = WriteBehind {
        bulk_memory: node.settings.bulk_memory.clone(),
        paths: node.settings.paths.clone(),
    };
    ours.run().unwrap();
    assert!(node.on_disk(2).exists());
}

#[test]
fn a_copy_of_what_fills_holes_is_all_that_a_restore_needs() {
    let (node, image) = (node(), tempfile::tempdir().unwrap());
    let image_id = ImageId::new(2);
    let from = node.stores.ram.join(image_id.to_string());
    let index = store_holes(image.path(), Tier::Ram, Some(from.clone()), 2);
    let origin = origin("c1", 2);
    origin.write(&from, Durability::Volatile).unwrap();
    pending::record(&node.stores, image_id, &origin).unwrap();
    assert!(matches!(node.copy()[..], [Outcome::Copied(_)]));
    // As after a restart of the machine.
    fs::remove_dir_all(&from).unwrap();
    let mut manifest = Manifest::new("c1", String::new(), String::new());
    manifest.memory = Some(StoredMemory {
        image_id,
        tier: Tier::Ram,
        boot_id: None,
    });
    let found = FoundMemory::find(&node.settings, image.path(), &manifest, Ok(()));
    let (found, to) = (found.unwrap().unwrap(), node.on_disk(2));
    assert_eq!(found.store(), Some(&*to));
    let damage = || {
        let mut damage = Vec::new();
        let amount = Scrub::default().read(found.index(), &to, |one| damage.push(one));
        assert_eq!(amount.read, STORED);
        damage
    };
    assert_eq!(damage(), [""; 0]);
    flip_bit_of(&index.processes[0].areas[0].chunks[1], &index, &to);
    assert_eq!(damage().len(), 1);
}
