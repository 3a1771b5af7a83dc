use super::*;
use crate::bulk_memory::restore::found::tests::index;
use stasis_memory_store::{
    Area, Checksum, Chunk, CriuHas, Encoding, PAGE, Place, ProcessMemory, StoredPages, Tier,
};

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
        criu_has: CriuHas::Memory,
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
    let dense = |so_many| {
        let extent = Extent::of(&one_page_in(so_many), None);
        (extent.with_huge_pages, extent.host_bytes())
    };
    // 8 MiB are in five huge pages of 2 MiB.
    assert_eq!(dense(1), (10 << 20, 10 << 20));
    assert_eq!(dense(2), (10 << 20, 4 << 20));
    assert_eq!(dense(512), (8 << 20, 4 * PAGE as u64));
}

#[test]
fn a_hole_takes_a_whole_file_and_nothing_is_filled_by_the_plugin() {
    let mut index = one_page_in(512);
    let memory = Extent::of(&index, None);
    let mut hole = index.processes[0].areas[0].clone();
    hole.criu_has = CriuHas::Hole;
    hole.start += 1 << 30;
    hole.bytes += PAGE as u64;
    index.processes[0].areas.push(hole);
    let both = Extent::of(&index, None);
    assert_eq!((memory.areas, both.areas), (1, 1));
    assert_eq!(both.host_bytes(), memory.host_bytes() + (10 << 20));
    index.processes[0].areas.remove(0);
    let hole = Extent::of(&index, None);
    assert_eq!((hole.areas, hole.host_bytes()), (0, 10 << 20));
    assert!(!hole.is_dense());
}

#[test]
fn the_sum_of_holes_is_never_less_than_they_are() {
    let mut index = one_page_in(512);
    let mut hole = index.processes[0].areas[0].clone();
    hole.criu_has = CriuHas::Hole;
    hole.bytes = 1 << 57;
    for pid in 2..130 {
        let areas = vec![hole.clone()];
        index.processes.push(ProcessMemory { pid, areas });
    }
    assert_eq!(Extent::of(&index, None).host_bytes(), u64::MAX);
}
