use super::prune::{left_over, prunable};
use super::verify::verify;
use super::*;
use crate::bulk_memory::origin::Origin;
use crate::bulk_memory::origin::tests::origin;
use crate::bulk_memory::scrub::tests::{START, STORED, flip_bit_of, store_holes};
use crate::bulk_memory::stores::tests::store;
use std::fs::{self, File};
use std::time::SystemTime;

use stasis_linux::file::Durability;
use stasis_memory_store::{Index, Tier};

use crate::bulk_memory::retention::CUT_OFF;
use crate::bulk_memory::{in_use, stores};

fn settings(directory: &Path) -> Settings {
    let mut settings = Settings::default();
    settings.bulk_memory.directory = directory.join("disk");
    settings.paths.state_dir = directory.to_owned();
    for name in ["disk", "memory"] {
        fs::create_dir(directory.join(name)).unwrap();
    }
    settings
}

/// What is removed.
fn pruned(settings: &Settings) -> Vec<String> {
    let found = prunable(settings).unwrap();
    for left_over in &found {
        assert_eq!(left_over.remove(settings).unwrap(), Removed::Yes);
    }
    found.iter().map(ToString::to_string).collect()
}

#[test]
fn what_is_in_memory_and_on_disk_is_listed_once() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path());
    let stores = Stores::of(&settings);
    store(&stores.disk, 1, &origin("c1", 1));
    store(&stores.ram, 1, &origin("c1", 1));
    store(&stores.ram, 2, &origin("c1", 2));
    let kept = list(&settings).unwrap();
    assert_eq!(kept.len(), 2);
    assert!(kept[0].in_ram && kept[0].durable && kept[1].in_ram && !kept[1].durable);
    let said = kept[1].to_string();
    assert!(said.contains("memory only, container c1"), "{said}");
    assert!(said.ends_with("/images/1 (not there any more)"), "{said}");

    let name = ImageId::new(1).to_string();
    assert!(remove(&settings, &name[..10]).is_err(), "of several");
    assert_eq!(remove(&settings, &name).unwrap(), ImageId::new(1));
    assert!(remove(&settings, &name).is_err());
    assert_eq!(list(&settings).unwrap().len(), 1);
}

#[test]
fn only_what_no_image_needs_is_pruned() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path());
    let disk = Stores::of(&settings).disk;
    let image = |name: &str| directory.path().join(name);
    let stored = [
        (1, "there", false, false),
        (2, "replaced", false, false),
        (3, "gone", false, true),
        (8, "gone", false, false),
        (9, "gone", true, true),
        (10, "replaced", true, true),
    ];
    for (id, name, exported, settled) in stored {
        let origin = Origin {
            image_path: image(name),
            exported,
            settled,
            ..origin("c1", 1)
        };
        store(&disk, id, &origin);
    }
    for (id, name) in [(1, "there"), (7, "replaced")] {
        let index = Index {
            image_id: ImageId::new(id),
            tier: Tier::Disk,
            packs: Vec::new(),
            processes: Vec::new(),
        };
        fs::create_dir(image(name)).unwrap();
        fs::write(
            image(name).join(stasis_memory_store::INDEX_FILE),
            index.encode(),
        )
        .unwrap();
    }
    // One that is being made, and two that were cut off.
    let being_made = disk.join(ImageId::new(4).to_string());
    fs::create_dir(&being_made).unwrap();
    let long_ago = SystemTime::now() - 2 * CUT_OFF;
    for name in [
        ImageId::new(5).to_string(),
        format!("{}.partial", ImageId::new(6)),
    ] {
        fs::create_dir(disk.join(&name)).unwrap();
        File::open(disk.join(name))
            .unwrap()
            .set_modified(long_ago)
            .unwrap();
    }
    assert_eq!(prunable(&settings).unwrap().len(), 4);
    let said = pruned(&settings);
    assert_eq!(said.len(), 4, "{said:?}");
    let mut left: Vec<_> = stores::names_in(&disk).unwrap();
    left.sort();
    let left: Vec<_> = left.into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        left,
        [1, 4, 8, 9, 10].map(|id| ImageId::new(id).to_string())
    );
}

#[test]
fn what_is_more_than_is_kept_may_still_be_needed() {
    let directory = tempfile::tempdir().unwrap();
    let mut settings = settings(directory.path());
    settings.bulk_memory.keep = 1;
    for (id, completed_ns) in [(1, 1), (2, 2)] {
        let origin = origin("c1", completed_ns);
        store(&Stores::of(&settings).disk, id, &origin);
    }
    assert_eq!(prunable(&settings).unwrap().len(), 1);
    assert!(left_over(&settings).unwrap().is_empty());
}

#[test]
fn what_is_used_is_not_removed() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path());
    let used = store(&Stores::of(&settings).disk, 1, &origin("c1", 1));
    let user = in_use::hold(&used).unwrap();
    let name = ImageId::new(1).to_string();
    let refused = remove(&settings, &name).unwrap_err();
    assert_eq!(refused.kind(), crate::error::kind::Kind::Busy);
    drop(user);
    remove(&settings, &name).unwrap();
}

#[test]
fn what_fills_holes_is_listed_verified_and_pruned() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path());
    let stores = Stores::of(&settings);
    let image = |id: u8| directory.path().join(format!("image-{id}"));
    let make = |id: u8, tier, parent: &Path| {
        let (image_id, container) = (ImageId::new(id.into()), format!("c{id}"));
        let packs = parent.join(image_id.to_string());
        fs::create_dir_all(image(id)).unwrap();
        let index = store_holes(&image(id), tier, Some(packs.clone()), id);
        let origin = Origin {
            image_path: image(id),
            ..origin(&container, id.into())
        };
        origin.write(&packs, Durability::Volatile).unwrap();
        (index, packs)
    };
    make(1, Tier::Disk, &stores.disk);
    let (index, packs) = make(2, Tier::Ram, &stores.ram);
    let listed = list(&settings).unwrap();
    let whole = |kept: &Kept| kept.complete && kept.image == Image::There && kept.bytes >= STORED;
    assert!(listed.len() == 2 && listed.iter().all(whole), "{listed:?}");
    assert!(prunable(&settings).unwrap().is_empty());

    let verified = verify(&settings, &[]).unwrap();
    let amounts = verified
        .iter()
        .map(|one| (one.damaged, one.bytes, one.needed_bytes));
    let amounts: Vec<_> = amounts.collect();
    assert_eq!(amounts, [(0, STORED, STORED); 2], "{verified:?}");
    flip_bit_of(&index.processes[0].areas[0].chunks[1], &index, &packs);
    let verified = verify(&settings, &[]).unwrap();
    assert_eq!(
        (verified[0].damaged, verified[1].damaged),
        (0, 1),
        "{verified:?}"
    );
    let says = format!("chunk 2 of the area at {START:#x} of process 1 ");
    assert!(verified[1].to_string().contains(&says), "{}", verified[1]);

    // Another checkpoint into the same directory.
    let newer = stores.disk.join(ImageId::new(3).to_string());
    store_holes(&image(1), Tier::Disk, Some(newer), 3);
    let pruned = pruned(&settings);
    assert_eq!(pruned.len(), 1, "{pruned:?}");
    let left = list(&settings).unwrap();
    let left: Vec<_> = left.iter().map(|kept| kept.image_id).collect();
    assert_eq!(left, [2, 3].map(ImageId::new));
}

#[test]
fn what_two_stores_have_is_read_once_and_said_of_both() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path());
    let disk = Stores::of(&settings).disk;
    let [first, second] = [1, 2].map(|id| disk.join(ImageId::new(id).to_string()));
    store_holes(directory.path(), Tier::Disk, Some(first.clone()), 1);
    fs::create_dir(&second).unwrap();
    for (name, path) in stores::names_in(&first).unwrap() {
        fs::hard_link(path, second.join(name)).unwrap();
    }
    let mut said: Vec<_> = verify(&settings, &[]).unwrap();
    said.sort_by_key(|verified| verified.needed_bytes - verified.bytes);
    let said = said.iter().map(ToString::to_string);
    let said: Vec<_> = said
        .map(|said| said.split_once(": ").unwrap().1.to_owned())
        .collect();
    let expected = [
        "whole, 7 MiB read",
        "whole, 0 MiB read, 7 MiB with another store before",
    ];
    assert_eq!(said, expected);
}
