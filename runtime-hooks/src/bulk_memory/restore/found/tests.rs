use super::*;
use crate::error::kind::Kind;
use crate::image::manifest::StoredMemory;
use stasis_memory_store::{ImageId, ProcessMemory};

pub(in crate::bulk_memory::restore) fn index(tier: Tier) -> Index {
    Index {
        image_id: ImageId::new(7),
        tier,
        packs: Vec::new(),
        processes: Vec::new(),
    }
}

fn manifest(id: u128, boot_id: Option<String>) -> Manifest {
    let mut manifest = Manifest::new("c1", String::new(), String::new());
    manifest.memory = Some(StoredMemory {
        image_id: ImageId::new(id),
        tier: Tier::Ram,
        boot_id,
    });
    manifest
}

#[test]
fn an_index_of_another_checkpoint_is_refused() {
    let check = |manifest: &Manifest| {
        let checked = check_name(Path::new("/image"), &index(Tier::Disk), manifest);
        checked.map_err(|denial| denial.to_string())
    };
    assert_eq!(check(&manifest(7, None)), Ok(()));
    let said = check(&manifest(8, None)).unwrap_err();
    assert!(said.contains(&ImageId::new(7).to_string()), "{said}");
    assert!(said.contains(&ImageId::new(8).to_string()), "{said}");
    let none = Manifest::new("c1", String::new(), String::new());
    assert!(check(&none).is_err());
}

#[test]
fn memory_comes_first_and_a_missing_place_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let stores = Stores {
        disk: directory.path().join("disk"),
        ram: directory.path().join("ram"),
    };
    let find = |tier, boot| {
        let image = directory.path();
        let found = find_packs(&stores, image, &index(tier), &manifest(7, boot));
        found.map(|found| found.map(|(directory, _in_use)| directory))
    };
    assert_eq!(find(Tier::Portable, None).unwrap(), None);
    let said = find(Tier::Ram, Some("other".into()))
        .unwrap_err()
        .to_string();
    assert!(
        said.contains("restarted") && said.contains("/disk/"),
        "{said}"
    );
    let said = find(Tier::Ram, boot_id()).unwrap_err().to_string();
    assert!(said.contains("deleted"), "{said}");
    let [disk, ram] =
        [&stores.disk, &stores.ram].map(|parent| parent.join(ImageId::new(7).to_string()));
    let write = |store: &Path, index: &Index| {
        std::fs::create_dir_all(store).unwrap();
        std::fs::write(store.join(STORE_INDEX_FILE), index.encode()).unwrap();
    };
    write(&disk, &index(Tier::Ram));
    assert_eq!(find(Tier::Ram, None).unwrap(), Some(disk.clone()));
    write(&ram, &index(Tier::Ram));
    assert_eq!(find(Tier::Ram, None).unwrap(), Some(ram));
    write(&disk, &index(Tier::Disk));
    assert_eq!(find(Tier::Disk, None).unwrap(), Some(disk));
}

#[test]
fn a_store_is_read_for_the_index_alone_that_it_was_written_with() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path();
    let check = |index: &Index| check_store(Path::new("/image"), index, store);
    let said = check(&index(Tier::Disk)).unwrap_err();
    assert_eq!(said.kind(), Kind::MemoryMissing, "{said}");
    std::fs::write(store.join(STORE_INDEX_FILE), index(Tier::Disk).encode()).unwrap();
    check(&index(Tier::Disk)).unwrap();
    // The same checkpoint, by its id, and other contents.
    let mut forged = index(Tier::Disk);
    forged.processes = vec![ProcessMemory {
        pid: 1,
        areas: Vec::new(),
    }];
    let said = check(&forged).unwrap_err();
    assert_eq!(said.kind(), Kind::ImageDamaged);
    assert!(said.to_string().contains("another index"), "{said}");
}
