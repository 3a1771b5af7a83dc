use std::fs::File;
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;

use stasis_memory_store::{CHUNK, Chunk, DumpRequest, FileContents, ImageId, PAGE, Tier, Writer};

use super::*;

pub(crate) const START: u64 = 0x7f00_0000_0000;
/// What is stored of [`store_holes`], bytes: a chunk that two processes have, and most of another.
pub(crate) const STORED: u64 = (2 * CHUNK - 3 * PAGE) as u64;
/// The files that are mapped over its holes, bytes: whole huge pages.
pub(crate) const FILES: u64 = 5 * CHUNK as u64;

/// The memory of a checkpoint whose image has holes alone, made as the engine does.
pub(crate) fn store_holes(image: &Path, tier: Tier, directory: Option<PathBuf>, id: u8) -> Index {
    let random = |seed| {
        let mut content = vec![0; CHUNK];
        fastrand::Rng::with_seed(u64::from(id) << 8 | seed).fill(&mut content);
        content
    };
    let mut half_empty = [random(1), vec![0; CHUNK], random(2)].concat();
    half_empty.truncate(3 * CHUNK - 3 * PAGE);
    let held = [
        (1, START, half_empty),
        (7, START, random(1)),
        (7, START + (1 << 30), vec![0; CHUNK]),
    ];
    let files: Vec<File> = held
        .iter()
        .map(|(_, _, content)| {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(content, 0).unwrap();
            file
        })
        .collect();
    let contents = |((pid, start, content), file): (&(i32, u64, Vec<u8>), _)| FileContents {
        pid: *pid,
        start: *start,
        file,
        offset: 0,
        bytes: content.len() as u64,
    };
    let contents: Vec<_> = held.iter().zip(&files).map(contents).collect();
    let mut writer = Writer::create(image, &request(tier, directory, id)).unwrap();
    // By one thread, so that what two processes have is stored once.
    let stored = writer.store_files(&contents, NonZeroUsize::MIN, &AtomicU64::new(0));
    let index = writer.finish(&stored.unwrap().0).unwrap();
    index
}

fn request(tier: Tier, directory: Option<PathBuf>, id: u8) -> DumpRequest {
    DumpRequest {
        image_id: ImageId::new(id.into()),
        tier,
        directory,
        earlier: None,
        threads: 1,
        compression: None,
        progress: None,
    }
}

/// Flips a bit of a chunk's contents; once more, and it is whole again.
pub(crate) fn flip_bit_of(chunk: &Chunk, index: &Index, packs: &Path) {
    let pack = index.packs[usize::try_from(chunk.place.pack).unwrap()];
    let pack = packs.join(pack.file_name());
    let pack = File::options().read(true).write(true).open(pack).unwrap();
    let at = chunk.place.offset + u64::from(chunk.place.bytes) - 100;
    let mut byte = [0];
    pack.read_exact_at(&mut byte, at).unwrap();
    pack.write_all_at(&[byte[0] ^ 4], at).unwrap();
}

fn damage_of(index: &Index, packs: &Path) -> Vec<String> {
    let mut damage = Vec::new();
    let amount = Scrub::default().read(index, packs, |one| damage.push(one));
    let (needed, read) = (STORED, STORED);
    assert_eq!(amount, Amount { needed, read }, "{damage:?}");
    damage
}

#[test]
fn each_damaged_chunk_of_a_hole_is_found_in_every_tier() {
    for (id, tier) in (1..).zip([Tier::Portable, Tier::Disk, Tier::Ram]) {
        let [image, store] = [0, 1].map(|_| tempfile::tempdir().unwrap());
        let directory = store.path().join("store");
        let index = store_holes(image.path(), tier, Some(directory.clone()), id);
        let packs = match tier {
            Tier::Portable => image.path(),
            Tier::Disk | Tier::Ram => &directory,
        };
        assert_eq!(damage_of(&index, packs), [""; 0], "{tier:?}");
        let mut found = 0;
        for chunk in index.areas().flat_map(|area| &area.chunks) {
            flip_bit_of(chunk, &index, packs);
            let damage = damage_of(&index, packs);
            let of = |pid| {
                format!(
                    "chunk {} of the area at {START:#x} of process {pid} ",
                    chunk.number
                )
            };
            assert!(damage[0].starts_with(&of(1)), "{damage:?}");
            // What two processes have is damaged for both.
            if chunk.number == 0 {
                assert!(damage[1].starts_with(&of(7)), "{damage:?}");
            }
            found += damage.len();
            flip_bit_of(chunk, &index, packs);
        }
        assert_eq!(found, 2 + 1 + 2, "{tier:?}");
    }
}

#[test]
fn what_was_read_for_another_store_is_needed_and_not_read_again() {
    let image = tempfile::tempdir().unwrap();
    let index = store_holes(image.path(), Tier::Portable, None, 1);
    let mut scrub = Scrub::default();
    for read in [STORED, 0] {
        let needed = STORED;
        let amount = scrub.read(&index, image.path(), |damage| panic!("{damage}"));
        assert_eq!(amount, Amount { needed, read });
    }
}
