use super::*;
use crate::image::manifest::StoredMemory;
use stasis_memory_store::{
    Area, Checksum, Chunk, Encoding, ImageId, PAGE, Place, ProcessMemory, StoredPages,
};

fn index(tier: Tier) -> Index {
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
    assert_eq!(check(&Manifest::implied("c1")), Ok(()));
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
    std::fs::create_dir_all(&disk).unwrap();
    assert_eq!(find(Tier::Ram, None).unwrap(), Some(disk.clone()));
    std::fs::create_dir_all(&ram).unwrap();
    assert_eq!(find(Tier::Ram, None).unwrap(), Some(ram));
    assert_eq!(find(Tier::Disk, None).unwrap(), Some(disk));
}

/// An area of two chunks, one of whose pages in so many is stored.
fn one_page_in(so_many: usize) -> Index {
    let mut content = vec![0; CHUNK];
    for page in content.chunks_mut(PAGE).step_by(so_many) {
        page.fill(1);
    }
    let chunk = |number| Chunk {
        number,
        pages: StoredPages::of(&content).unwrap(),
        checksum: Checksum::of(&content),
        place: Place {
            pack: 0,
            offset: 0,
            bytes: 0,
            encoding: Encoding::Raw,
        },
    };
    let area = Area {
        // In the middle of a huge page.
        start: 0x7f00_0010_0000,
        bytes: 2 * CHUNK as u64,
        chunks: vec![chunk(0), chunk(1)],
    };
    let mut index = index(Tier::Portable);
    index.processes.push(ProcessMemory {
        pid: 1,
        areas: vec![area],
    });
    index
}

#[test]
fn huge_pages_are_for_dense_memory() {
    let directory = tempfile::tempdir().unwrap();
    let dense = |so_many| {
        let index = one_page_in(so_many);
        let chunks = index.areas().flat_map(|area| &area.chunks);
        let restore = MemoryRestore {
            _in_use: None,
            areas: 1,
            bytes: chunks.map(|chunk| chunk.pages.bytes() as u64).sum(),
            with_huge_pages: with_huge_pages(&index),
            request: RestoreRequest {
                image_id: ImageId::new(7),
                directory: None,
                threads: 1,
                progress: None,
                report: None,
            },
            files: RequestFiles::of(directory.path()),
        };
        (restore.with_huge_pages, restore.bytes())
    };
    // 8 MiB are in five huge pages of 2 MiB.
    assert_eq!(dense(1), (10 << 20, 10 << 20));
    assert_eq!(dense(2), (10 << 20, 4 << 20));
    assert_eq!(dense(512), (8 << 20, 4 * PAGE as u64));
}
