use super::*;
use crate::{After, Area, Buffer, CHUNK, Chunk, Compression, PAGE, StoredPages, pack};
use tempfile::TempDir;

pub(crate) fn order(tier: Tier, directory: Option<PathBuf>, id: u128) -> DumpOrder {
    DumpOrder {
        image_id: ImageId::new(id),
        tier,
        directory,
        earlier: None,
        threads: 2,
        compression: None,
        after: After::End,
        minimum_mib: 1,
        progress: None,
        report: None,
    }
}

/// Contents of a chunk that depend on the seed: some pages are zero, the others are random.
fn content(seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; CHUNK];
    for page in bytes.chunks_mut(PAGE) {
        if seed.is_multiple_of(3) || random.u8(..) > 80 {
            random.fill(page);
        }
    }
    bytes
}

/// An area with these contents.
fn store(writer: &Writer, start: u64, seeds: &[u64]) -> ProcessMemory {
    let mut lane = writer.lane().unwrap();
    let mut buffer = Buffer::new();
    let chunks = (0..).zip(seeds).map(|(number, seed)| {
        buffer.as_mut_slice().copy_from_slice(&content(*seed));
        let pages = StoredPages::of(buffer.as_slice()).unwrap();
        let bytes = pack(&mut buffer, &pages);
        let (checksum, place) = lane.put(&buffer, bytes).unwrap();
        Chunk {
            number,
            pages,
            checksum,
            place,
        }
    });
    let area = Area {
        start,
        bytes: (seeds.len() * CHUNK) as u64,
        chunks: chunks.collect(),
    };
    lane.close().unwrap();
    ProcessMemory {
        pid: 7,
        areas: vec![area],
    }
}

fn verify(reader: &Reader, process: &ProcessMemory, seeds: &[u64]) {
    let mut buffer = Buffer::new();
    for area in &process.areas {
        for (chunk, seed) in area.chunks.iter().zip(seeds) {
            let read = reader.read(7, area.start, chunk, &mut buffer).unwrap();
            let mut whole = vec![0; CHUNK];
            let mut from = 0;
            for run in chunk.pages.runs() {
                whole[run.offset..][..run.bytes].copy_from_slice(&read[from..][..run.bytes]);
                from += run.bytes;
            }
            assert!(whole == content(*seed), "chunk {}", chunk.number);
        }
    }
}

#[test]
fn what_is_stored_can_be_read_from_every_tier_raw_and_compressed() {
    for (tier, level) in [
        (Tier::Portable, None),
        (Tier::Disk, None),
        (Tier::Ram, None),
        (Tier::Portable, Some(1)),
        (Tier::Disk, Some(1)),
    ] {
        let (image, store_dir) = (TempDir::new().unwrap(), TempDir::new_in(".").unwrap());
        let directory = store_dir.path().join("a");
        let mut order = order(tier, Some(directory.clone()), 1);
        order.compression = level.map(|level| Compression { level });
        let mut writer = Writer::create(image.path(), &order).unwrap();
        let seeds = [1, 2, 3];
        let process = store(&writer, 0x1000_0000, &seeds);
        verify(&writer.reader(), &process, &seeds);
        let index = writer.finish(std::slice::from_ref(&process)).unwrap();
        verify(&writer.reader(), &process, &seeds);
        drop(writer);
        assert_eq!(Index::read(image.path()).unwrap().unwrap(), index);
        let reader = Reader::open(image.path(), &index, Some(&directory)).unwrap();
        verify(&reader, &index.processes[0], &seeds);
    }
}
