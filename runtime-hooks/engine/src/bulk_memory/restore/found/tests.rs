use stasis_memory_store::{ImageId, ProcessMemory, STORE_INDEX_FILE};

use super::*;
use crate::error::kind::Kind;
use crate::image::manifest::StoredMemory;

pub(in crate::bulk_memory::restore) fn index(packs_in: PacksIn) -> Index {
    Index {
        image_id: ImageId::new(7),
        packs_in,
        packs: Vec::new(),
        processes: Vec::new(),
    }
}

fn manifest(id: u128) -> Manifest {
    let mut manifest = Manifest::new("c1", String::new(), String::new());
    manifest.memory = Some(StoredMemory {
        image_id: ImageId::new(id),
        packs_in: PacksIn::Directory,
    });
    manifest
}

#[test]
fn an_index_of_another_checkpoint_is_refused() {
    let check = |manifest: &Manifest| {
        let checked = check_name(Path::new("/image"), &index(PacksIn::Directory), manifest);
        checked.map_err(|denial| denial.to_string())
    };
    assert_eq!(check(&manifest(7)), Ok(()));
    let said = check(&manifest(8)).unwrap_err();
    assert!(said.contains(&ImageId::new(7).to_string()), "{said}");
    assert!(said.contains(&ImageId::new(8).to_string()), "{said}");
    let none = Manifest::new("c1", String::new(), String::new());
    assert!(check(&none).is_err());
}

#[test]
fn contents_apart_are_found_where_the_settings_say_and_nowhere_else() {
    let directory = tempfile::tempdir().unwrap();
    let apart = directory.path().join("apart");
    let find = |packs_in, apart: Option<&Path>| {
        let found = find_packs(apart, directory.path(), &index(packs_in));
        found.map(|found| found.map(|(directory, _in_use)| directory))
    };
    for apart in [None, Some(&*apart)] {
        assert_eq!(find(PacksIn::Image, apart).unwrap(), None);
    }
    let said = find(PacksIn::Directory, Some(&apart)).unwrap_err();
    assert_eq!(said.kind(), Kind::MemoryMissing);
    let said = said.to_string();
    for part in [&ImageId::new(7).to_string(), apart.to_str().unwrap()] {
        assert!(said.contains(part), "{said}");
    }
    let said = find(PacksIn::Directory, None).unwrap_err();
    assert_eq!(said.kind(), Kind::MemoryMissing);
    let said = said.to_string();
    assert!(said.contains("gpu_contents.directory is empty"), "{said}");
    let packs = places::of_image(&apart, ImageId::new(7));
    std::fs::create_dir_all(&packs).unwrap();
    let written = index(PacksIn::Directory).encode();
    std::fs::write(packs.join(STORE_INDEX_FILE), written).unwrap();
    let found = find(PacksIn::Directory, Some(&apart)).unwrap();
    assert_eq!(found, Some(packs));
}

#[test]
fn a_store_is_read_for_the_index_alone_that_it_was_written_with() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path();
    let index = index(PacksIn::Directory);
    let check = |index: &Index| check_store(Path::new("/image"), index, store);
    let said = check(&index).unwrap_err();
    assert_eq!(said.kind(), Kind::MemoryMissing, "{said}");
    std::fs::write(store.join(STORE_INDEX_FILE), index.encode()).unwrap();
    check(&index).unwrap();
    // The same checkpoint, by its id, and other contents.
    let mut forged = index;
    forged.processes = vec![ProcessMemory {
        pid: 1,
        areas: Vec::new(),
    }];
    let said = check(&forged).unwrap_err();
    assert_eq!(said.kind(), Kind::ImageDamaged);
    assert!(said.to_string().contains("another index"), "{said}");
}
