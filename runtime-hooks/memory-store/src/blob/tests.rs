use std::collections::HashMap;
use std::fs;
use std::path::Path;

use super::contents::{BlobContents, Content, ContentHash, decode, encode};
use super::gather::{Gathered, NewBlobs, Plan};
use super::split::{BlobsOf, Lengths};
use super::*;
use crate::test_data::{Images, PID, START, content, verify};
use crate::{
    Area, Buffer, CHUNK, Chunk, Encoding, Index, PAGE, PacksIn, ProcessMemory, Reader, StoreError,
    StoredPages, Writer,
};

/// Every blob has about four contents.
fn short(_: u64) -> Lengths {
    Lengths {
        least: CHUNK as u64,
        most: 4 * CHUNK as u64,
    }
}

/// Blobs in memory, with names that suffice for a test.
#[derive(Default)]
pub(super) struct InMemory {
    growing: Vec<u8>,
    pub(super) blobs: HashMap<BlobDigest, Vec<u8>>,
}

impl InMemory {
    /// Writes packs as a pull does.
    pub(super) fn write_packs(&self, into: &Path, gathered: &Gathered) {
        for blob in &gathered.blobs {
            let pack = pack_of(&blob.digest, blob.bytes).unwrap();
            let file = [pack_header(&pack), self.blobs[&blob.digest].clone()].concat();
            fs::write(into.join(pack.file_name()), file).unwrap();
        }
    }
}

impl NewBlobs for InMemory {
    type Error = StoreError;

    fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.growing.extend(bytes);
        Ok(())
    }

    fn end(&mut self) -> Result<BlobDigest, StoreError> {
        let blob = std::mem::take(&mut self.growing);
        let digest = blake3::hash(&blob).into();
        self.blobs.insert(digest, blob);
        Ok(digest)
    }
}

fn gather(
    index: &Index,
    reader: &Reader,
    there: &[BlobContents],
    new: &mut InMemory,
) -> Result<Gathered, StoreError> {
    Plan::of(BlobsOf::Memory, index, reader, there, short, 3)?.put(new)
}

/// An image with these contents, gathered.
fn gathered(
    images: &Images,
    id: u128,
    seeds: &[u64],
    there: &[BlobContents],
    new: &mut InMemory,
) -> Gathered {
    let (index, _) = images.dump(&images.request(PacksIn::Directory, id), id, seeds);
    let directory = images.directory(id);
    let reader = Reader::open(&images.image(id), &index, Some(&directory)).unwrap();
    gather(&index, &reader, there, new).unwrap()
}

/// Reads a pulled image.
fn verify_pulled(into: &Path, gathered: &Gathered, new: &InMemory, seeds: &[u64]) {
    new.write_packs(into, gathered);
    let index = Index::decode(&gathered.index.encode()).unwrap();
    let reader = Reader::open(into, &index, None).unwrap();
    verify(&reader, &index.processes[0], seeds);
}

fn moved(gathered: &Gathered) -> usize {
    let blobs = gathered.blobs.iter();
    let new = blobs.filter(|blob| !gathered.kept.contains(&blob.digest));
    new.map(|blob| blob.contents.len()).sum()
}

#[test]
fn an_image_is_read_from_its_blobs_and_equal_contents_are_there_once() {
    let images = Images::new();
    // Some of them are compressed.
    let seeds = [1, 2, 3, 1, 6, 9, 12, 15, 18, 21, 2];
    let mut new = InMemory::default();
    let all = gathered(&images, 1, &seeds, &[], &mut new);
    assert_eq!((all.kept.len(), moved(&all)), (0, 9));
    assert!(all.blobs.len() > 1);
    assert_eq!(all.index.packs_in, PacksIn::Image);
    verify_pulled(&images.image(100), &all, &new, &seeds);
    assert_eq!(decode(&encode(&all.blobs)).unwrap(), all.blobs);
}

#[test]
fn of_a_second_checkpoint_only_the_differences_are_put_into_blobs() {
    let images = Images::new();
    let seeds: Vec<u64> = (1..=12).collect();
    let mut new = InMemory::default();
    let first = gathered(&images, 1, &seeds, &[], &mut new);
    let mut changed = seeds;
    changed[5] = 20;
    let second = gathered(&images, 2, &changed, &first.blobs, &mut new);
    assert_eq!(moved(&second), 1);
    verify_pulled(&images.image(100), &second, &new, &changed);
    // A third image finds all contents, in the blobs of both, and has the same packs.
    let mut there = second.blobs.clone();
    there.reverse();
    let third = gathered(&images, 3, &changed, &there, &mut new);
    assert_eq!(third.index.packs, second.index.packs);
    assert_eq!((third.blobs.len(), moved(&third)), (second.blobs.len(), 0));
}

#[test]
fn a_blob_of_which_little_is_needed_is_not_referred_to() {
    let images = Images::new();
    let mut new = InMemory::default();
    let seeds: Vec<u64> = (3..=14).map(|seed| 3 * seed).collect();
    let first = gathered(&images, 1, &seeds, &[], &mut new);
    let largest = first.blobs.iter().max_by_key(|blob| blob.contents.len());
    let largest = largest.unwrap().clone();
    // The blob has much beside the first content.
    let mut padded = largest.clone();
    padded.bytes += 16 * CHUNK as u64;
    let second = gathered(&images, 2, &seeds, &[padded], &mut new);
    assert_eq!((second.kept.len(), moved(&second)), (0, seeds.len()));
    let second = gathered(&images, 3, &seeds, &[largest], &mut new);
    assert_eq!(second.kept.len(), 1);
}

#[test]
fn equal_contents_make_equal_blobs_whatever_came_before() {
    let images = Images::new();
    let seeds: Vec<u64> = (1..=40).collect();
    let mut new = InMemory::default();
    let one = gathered(&images, 1, &seeds, &[], &mut new);
    let mut more = vec![100];
    more.extend(&seeds);
    let other = gathered(&images, 2, &more, &[], &mut new);
    let is_in_one = |blob: &&BlobContents| one.blobs.contains(blob);
    let same = other.blobs.iter().filter(is_in_one).count();
    assert!(same > 0, "of {} blobs", other.blobs.len());
}

#[test]
fn zeros_that_are_stored_are_not_moved() {
    let images = Images::new();
    let mut new = InMemory::default();
    let first = gathered(&images, 1, &[1, 2, 3], &[], &mut new);
    // The same contents as a pack has them whose pages lie as in their process.
    let mut writer =
        Writer::create(&images.image(2), &images.request(PacksIn::Directory, 2)).unwrap();
    let mut stream = writer.stream().unwrap();
    let mut put = |number, content: Vec<u8>| {
        let mut buffer = Buffer::new();
        buffer.as_mut_slice().copy_from_slice(&content);
        let pages = StoredPages::All(u16::try_from(CHUNK / PAGE).unwrap());
        let (checksum, place) = stream.put(buffer.as_slice(), &pages).unwrap();
        Chunk {
            number,
            pages,
            checksum,
            place,
        }
    };
    let chunks = vec![
        put(0, content(1)),
        put(1, content(2)),
        put(2, vec![0; CHUNK]),
        put(3, content(3)),
    ];
    stream.close().unwrap();
    let area = Area {
        start: START,
        bytes: 4 * CHUNK as u64,
        chunks,
    };
    let index = writer
        .finish(&[ProcessMemory {
            pid: PID,
            areas: vec![area],
        }])
        .unwrap();
    let reader = writer.reader();
    let second = gather(&index, &reader, &first.blobs, &mut new).unwrap();
    assert_eq!(moved(&second), 0);
    let numbers = second.index.processes[0].areas[0].chunks.iter();
    assert_eq!(
        numbers.map(|chunk| chunk.number).collect::<Vec<_>>(),
        [0, 1, 3]
    );
    verify_pulled(&images.image(100), &second, &new, &[1, 2, 3]);
}

#[test]
fn damaged_memory_is_not_put_into_blobs() {
    let images = Images::new();
    let (index, _) = images.dump(&images.request(PacksIn::Directory, 1), 1, &[1, 2, 3]);
    let directory = images.directory(1);
    let pack = directory.join(index.packs[0].file_name());
    let mut bytes = fs::read(&pack).unwrap();
    let last = index.processes[0].areas[0].chunks[2].place.offset;
    bytes[usize::try_from(last).unwrap() + 100] ^= 1;
    fs::write(&pack, bytes).unwrap();
    let reader = Reader::open(&images.image(1), &index, Some(&directory)).unwrap();
    let error = gather(&index, &reader, &[], &mut InMemory::default()).unwrap_err();
    assert!(
        matches!(error, StoreError::Chunk { chunk: 2, .. }),
        "{error}"
    );
}

#[test]
fn an_image_has_few_blobs_and_none_is_too_large() {
    for (gib, least) in [
        (0, 256 << 20),
        (32, 256 << 20),
        (33, 512 << 20),
        (1024, 8 << 30),
    ] {
        let lengths = Lengths::of(BlobsOf::Memory, gib << 30);
        assert_eq!(lengths.least, least, "{gib} GiB");
        assert!((gib << 30) / least <= 128);
        assert!(lengths.most + CHUNK as u64 <= MOST_BLOB_BYTES);
    }
    assert_eq!(Lengths::of(BlobsOf::Memory, u64::MAX).least, 8 << 30);
    let of_files = Lengths::of(BlobsOf::Files, 9 << 30);
    assert_eq!(of_files.least, 512 << 20);
    // With CRIU's other files, two indexes, the list of contents, and an engine's two.
    assert_eq!(BlobsOf::Memory.limit() + BlobsOf::Files.limit() + 6, 400);
}

#[test]
fn a_list_of_contents_is_not_believed() {
    let at = |offset: u64| Content {
        hash: ContentHash::of(&offset.to_le_bytes()),
        content_bytes: 8192,
        offset,
        bytes: 8192,
        encoding: Encoding::Raw,
    };
    let blob = BlobContents {
        digest: [1; 32],
        bytes: 16384,
        contents: vec![at(0), at(8192)],
    };
    let good = encode(std::slice::from_ref(&blob));
    assert_eq!(decode(&good).unwrap(), std::slice::from_ref(&blob));
    type Change = fn(&mut BlobContents);
    let changes: [(&str, Change); 8] = [
        ("outside", |blob| blob.contents[1].offset = 12288),
        ("overflow", |blob| blob.contents[1].offset = u64::MAX - 4095),
        ("overlap", |blob| blob.contents[1].offset = 4096),
        ("no page", |blob| blob.contents[0].offset = 1),
        ("raw", |blob| blob.contents[0].bytes = 4096),
        ("zstd", |blob| blob.contents[0].encoding = Encoding::Zstd),
        ("large", |blob| blob.contents[0].content_bytes = 1 << 30),
        ("no blob", |blob| blob.bytes = 0),
    ];
    for (what, change) in changes {
        let mut changed = blob.clone();
        change(&mut changed);
        assert!(decode(&encode(&[changed])).is_err(), "{what}");
    }
    decode(&encode(&[blob.clone(), blob])).unwrap_err();
    for end in 0..good.len() {
        decode(&good[..end]).unwrap_err();
    }
    decode(&[good.as_slice(), &[0]].concat()).unwrap_err();
    // A length that no list has is not allocated.
    let mut long = good;
    long[12..16].fill(0xff);
    decode(&long).unwrap_err();
}
