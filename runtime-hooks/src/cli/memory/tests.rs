use super::prune::{Prune, prune};
use super::*;
use crate::bulk_memory::origin::tests::origin;
use crate::bulk_memory::stores::tests::store;
use std::fs::{self, File};
use std::time::SystemTime;

fn settings(directory: &Path) -> Settings {
    let mut settings = Settings::default();
    settings.bulk_memory.directory = directory.join("disk");
    settings.paths.state_dir = directory.to_owned();
    for name in ["disk", "memory"] {
        fs::create_dir(directory.join(name)).unwrap();
    }
    settings
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
    for (id, name) in [(1, "there"), (2, "replaced"), (3, "gone")] {
        let mut origin = origin("c1", 1);
        origin.image_path = image(name);
        store(&disk, id, &origin);
    }
    for (id, name) in [(1, "there"), (7, "replaced")] {
        let index = Index {
            image_id: ImageId::new(id),
            tier: stasis_memory_store::Tier::Disk,
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
    assert_eq!(prune(&settings, Prune::Show).unwrap().len(), 4);
    let said = prune(&settings, Prune::Remove).unwrap();
    assert_eq!(said.len(), 4, "{said:?}");
    let mut left: Vec<_> = stores::names_in(&disk).unwrap();
    left.sort();
    let left: Vec<_> = left.into_iter().map(|(name, _)| name).collect();
    assert_eq!(left, [1, 4].map(|id| ImageId::new(id).to_string()));
}
