use super::*;
use crate::index::tests::sample;

/// Asserts a refusal both when an index is read and before it is written.
fn refused(change: impl FnOnce(&mut Index), says: &str) {
    let mut index = sample();
    change(&mut index);
    let what = check(&index).unwrap_err();
    let message = Index::decode(&index.encode()).unwrap_err().to_string();
    assert_eq!(message, format!("stasis-memory.index is damaged: {what}"));
    assert!(what.contains(says), "{what}");
}

fn refused_area(change: fn(&mut Vec<Area>), says: &str) {
    let says = format!("process 1: {says}");
    refused(|index| change(&mut index.processes[0].areas), &says);
}

fn refused_chunk(change: impl FnOnce(&mut Chunk), says: &str) {
    let change = |index: &mut Index| change(&mut index.processes[0].areas[1].chunks[1]);
    refused(
        change,
        &format!("process 1: area at 0xc0000000: chunk {says}"),
    );
}

fn refused_pages(pages: StoredPages) {
    let what = format!("1: {} stored pages up to number ", pages.count());
    refused_chunk(|chunk| chunk.pages = pages, &what);
}

#[test]
fn packs_that_cannot_be() {
    refused(|index| index.packs[1].stream = 0, "-0.pack is listed twice");
    for bytes in [0, (64 << 20) + 1, 1 << 63] {
        let says = format!("-1.pack cannot have {bytes} bytes");
        refused(|index| index.packs[1].bytes = bytes, &says);
    }
}

#[test]
fn processes_that_cannot_be() {
    refused(
        |index| index.processes[0].pid = 0,
        "process 0 is impossible",
    );
    refused(
        |index| index.processes[0].pid = -4,
        "process -4 is impossible",
    );
    let twice = |index: &mut Index| index.processes.extend_from_within(..);
    refused(twice, "process 1 is impossible or listed twice");
}

#[test]
fn areas_that_cannot_be() {
    refused_area(|areas| areas.swap(0, 1), "the area at 0x40000000 overlaps");
    refused_area(
        |areas| areas[1].start = (1 << 30) + 4096,
        "the area at 0x40001000 overlaps",
    );
    refused_area(
        |areas| areas[0].start += 1,
        "an area of 4214784 bytes at 0x40000001 cannot be",
    );
    refused_area(
        |areas| areas[0].bytes += 1,
        "an area of 4214785 bytes at 0x40000000 cannot be",
    );
    refused_area(|areas| areas[0].bytes = 0, "an area of 0 bytes");
    refused_area(|areas| areas[1].start = u64::MAX - 4095, "an area of");
    refused_area(|areas| areas[1].start = 1 << 57, "an area of");
}

#[test]
fn chunks_that_cannot_be() {
    refused_area(
        |areas| areas[1].chunks.swap(0, 1),
        "area at 0xc0000000: chunk 0 is listed twice or out of order",
    );
    refused_chunk(|chunk| chunk.number = 0, "0 is listed twice");
    refused_chunk(
        |chunk| chunk.number = 2,
        "2: 5 stored pages up to number 5 do not fit a chunk of 0",
    );
    refused_chunk(
        |chunk| chunk.number = u32::MAX,
        "4294967295: 5 stored pages",
    );
}

#[test]
fn pages_that_cannot_be() {
    let some = |first: u64| {
        let mut bits = [0; 16];
        bits[0] = first;
        StoredPages::Some(Box::new(bits))
    };
    // The chunk has five pages.
    for bits in [0, 0b10_0001, 0b1_1111] {
        refused_pages(some(bits));
    }
    for all in [4, 6, u16::MAX] {
        refused_pages(StoredPages::All(all));
    }
}

#[test]
fn places_that_cannot_be() {
    refused_chunk(|chunk| chunk.place.pack = 2, "1: pack 2 is not listed");
    for offset in [0, 4097, 64 << 20, (64 << 20) - 4096, u64::MAX - 4095] {
        let says = format!("1: 20480 bytes at {offset} are not in stasis-memory-");
        refused_chunk(|chunk| chunk.place.offset = offset, &says);
    }
    for (encoding, bytes) in [
        (Encoding::Raw, 0),
        (Encoding::Raw, 4 * 4096),
        (Encoding::Raw, 6 * 4096),
        (Encoding::Zstd, 0),
        (Encoding::Zstd, 5 * 4096),
    ] {
        let says = format!("1: {bytes} bytes cannot hold 20480");
        let change = |chunk: &mut Chunk| {
            chunk.place.encoding = encoding;
            chunk.place.bytes = bytes;
        };
        refused_chunk(change, &says);
    }
}
