use super::*;
use crate::index::codec::{HEADER, seal};
use crate::test_data::text;
use crate::{Area, CHUNK, Checksum, Chunk, ChunkLocation, Encoding, PAGE, StoredPages};
use proptest::prelude::*;
use std::fs::{self, File};

fn packs() -> impl Strategy<Value = Vec<Pack>> {
    let pack = (any::<u128>(), any::<u16>(), 1..1_u64 << 50);
    let packs = proptest::collection::vec(pack, 1..4);
    packs.prop_map(|packs| {
        let mut packs: Vec<_> = packs
            .into_iter()
            .map(|(creator, stream, pages)| Pack {
                creator: ImageId::new(creator),
                stream,
                bytes: (pages + CHUNK as u64) * PAGE as u64,
            })
            .collect();
        packs.sort();
        packs.dedup_by_key(|pack| (pack.creator, pack.stream));
        packs
    })
}

/// Makes a chunk that fits an area and packs. The numbers choose its fields.
fn chunk(area: &Area, number: u32, packs: &[Pack], chosen: (u64, u128, u64)) -> Chunk {
    let (pages_seed, checksum, offset) = chosen;
    let bytes = area.chunk_bytes(number);
    let mut content = vec![0; bytes];
    let mut random = fastrand::Rng::with_seed(pages_seed);
    let all = random.bool();
    for page in content.chunks_mut(PAGE) {
        page[0] = u8::from(all || random.bool());
    }
    content[0] = 1;
    let pages = StoredPages::of(&content).unwrap();
    let pack = usize::try_from(checksum % packs.len() as u128).unwrap();
    let zstd = random.bool();
    let stored = u32::try_from(pages.bytes()).unwrap() - u32::from(zstd);
    let room = (packs[pack].bytes - CHUNK as u64) / PAGE as u64;
    Chunk {
        number,
        pages,
        checksum: Checksum(checksum),
        place: ChunkLocation {
            pack: u32::try_from(pack).unwrap(),
            offset: (1 + offset % (room - 1)) * PAGE as u64,
            bytes: stored,
            encoding: if zstd { Encoding::Zstd } else { Encoding::Raw },
        },
    }
}

fn areas(packs: Vec<Pack>) -> impl Strategy<Value = Vec<Area>> {
    let chosen = proptest::collection::vec((any::<u64>(), any::<u128>(), any::<u64>()), 0..3);
    let area = (0..100_u64, 1..3000_u64, chosen);
    proptest::collection::vec(area, 0..4).prop_map(move |areas| {
        let mut next = 1 << 30;
        let made = areas.into_iter().map(|(gap, pages, chosen)| {
            let mut area = Area {
                start: next + gap * PAGE as u64,
                bytes: pages * PAGE as u64,
                chunks: Vec::new(),
            };
            next = area.start + area.bytes;
            let chunks = (0..).zip(chosen);
            let chunks = chunks.filter(|(number, _)| area.chunk_bytes(*number) > 0);
            area.chunks = chunks
                .map(|(number, chosen)| chunk(&area, number, &packs, chosen))
                .collect();
            area
        });
        made.collect()
    })
}

fn indexes() -> impl Strategy<Value = Index> {
    let places = [PacksIn::Image, PacksIn::Directory];
    packs().prop_flat_map(move |packs| {
        let processes = proptest::collection::vec(areas(packs.clone()), 0..3);
        (any::<u128>(), 0..2_usize, processes).prop_map(move |(id, place, processes)| Index {
            image_id: ImageId::new(id),
            packs_in: places[place],
            packs: packs.clone(),
            processes: (1..)
                .zip(processes)
                .map(|(pid, areas)| ProcessMemory { pid, areas })
                .collect(),
        })
    })
}

/// Makes a small index: two areas of two chunks each, in two packs.
pub(crate) fn sample() -> Index {
    let packs = [0, 1].map(|stream| Pack {
        creator: ImageId::new(5),
        stream,
        bytes: 64 << 20,
    });
    let area = |start| {
        let mut area = Area {
            start,
            bytes: (CHUNK + 5 * PAGE) as u64,
            chunks: Vec::new(),
        };
        area.chunks = [0, 1]
            .map(|number| chunk(&area, number, &packs, (3, u128::from(start) >> 30, 7)))
            .into();
        area.chunks[1].pages = StoredPages::All(5);
        area.chunks[1].place.bytes = 5 * 4096;
        area.chunks[1].place.encoding = Encoding::Raw;
        area
    };
    Index {
        image_id: ImageId::new(9),
        packs_in: PacksIn::Directory,
        packs: packs.into(),
        processes: vec![ProcessMemory {
            pid: 1,
            areas: vec![area(1 << 30), area(3 << 30)],
        }],
    }
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(index in indexes()) {
        prop_assert_eq!(Index::decode(&index.encode()).unwrap(), index);
    }

    #[test]
    fn any_bytes_are_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(Index::decode(&bytes).is_err());
        // A body that is accepted with a header can only be an encoded index.
        let sealed = seal(&bytes);
        if let Ok(index) = Index::decode(&sealed) {
            prop_assert_eq!(index.encode(), sealed);
        }
    }
}

/// Stands in for the fuzzer, which needs a nightly compiler: bodies with random changes and a
/// correct hash.
#[test]
fn changed_bodies_are_refused_or_mean_what_they_say() {
    let body = sample().encode().split_off(HEADER);
    let mut random = fastrand::Rng::with_seed(5);
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..100_000 {
        let mut changed = body.clone();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..changed.len());
            match random.u8(..6) {
                0 => changed[at] = random.u8(..),
                1 => changed[at] ^= 1 << random.u8(..8),
                2 => changed[at..]
                    .iter_mut()
                    .take(8)
                    .for_each(|byte| *byte = 0xff),
                3 => changed[at..].iter_mut().take(8).for_each(|byte| *byte = 0),
                4 => changed.truncate(at + 1),
                _ => changed.insert(at, random.u8(..)),
            }
        }
        let sealed = seal(&changed);
        match Index::decode(&sealed) {
            Ok(index) => {
                accepted += 1;
                assert_eq!(index.encode(), sealed);
            }
            Err(error) => {
                refused += 1;
                assert!(error.to_string().starts_with(INDEX_FILE), "{error}");
            }
        }
    }
    assert!(accepted > 1000 && refused > 1000, "{accepted} {refused}");
}

#[test]
fn every_changed_byte_and_every_cut_is_found() {
    let bytes = sample().encode();
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        assert!(Index::decode(&changed).is_err(), "byte {at}");
        assert!(Index::decode(&bytes[..at]).is_err(), "cut at {at}");
    }
    let longer = [&bytes[..], &[0]].concat();
    assert!(Index::decode(&longer).is_err());
}

#[test]
fn a_huge_declared_length_is_refused_before_there_is_memory_for_it() {
    let body = sample().encode().split_off(HEADER);
    for at in [17, 17 + 4 + 2 * 26] {
        let mut changed = body.clone();
        changed[at..at + 4].fill(0xff);
        let message = Index::decode(&seal(&changed)).unwrap_err().to_string();
        assert!(message.contains("Unexpected length of input"), "{message}");
    }
    let mut header = seal(&body);
    header[16..24].fill(0xff);
    let message = Index::decode(&header).unwrap_err().to_string();
    assert!(
        message.contains("it says to have 18446744073709551615"),
        "{message}"
    );
}

#[test]
fn an_unknown_version_place_or_encoding_is_refused() {
    let bytes = sample().encode();
    for other in [1, 2, 4] {
        let mut version = bytes.clone();
        version[8] = other;
        let message = Index::decode(&version).unwrap_err().to_string();
        let says = format!("has version {other}; this stasis reads version 3 alone");
        assert!(message.contains(&says), "{message}");
    }
    let mut body = bytes[HEADER..].to_vec();
    body[16] = 2;
    let message = Index::decode(&seal(&body)).unwrap_err().to_string();
    assert!(message.contains("variant tag: 2"), "{message}");
    body[16] = 1;
    *body.last_mut().unwrap() = 2;
    let message = Index::decode(&seal(&body)).unwrap_err().to_string();
    assert!(message.contains("variant tag: 2"), "{message}");
}

#[test]
fn only_a_regular_file_of_a_possible_size_is_read() {
    let image = tempfile::tempdir().unwrap();
    let path = image.path().join(INDEX_FILE);
    let refused = || text(&Index::read(image.path()).unwrap_err());
    assert_eq!(Index::read(image.path()).unwrap(), None);
    fs::create_dir(&path).unwrap();
    assert!(refused().ends_with("is not a regular file"));
    fs::remove_dir(&path).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
    assert!(refused().ends_with("is not a regular file"));
    fs::remove_file(&path).unwrap();
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(refused().ends_with("is not a regular file"));
    fs::remove_file(&path).unwrap();
    File::create(&path).unwrap().set_len(1 << 40).unwrap();
    assert!(refused().contains("it is larger than"));
    fs::write(&path, sample().encode()).unwrap();
    assert_eq!(Index::read(image.path()).unwrap(), Some(sample()));
}
