mod in_place;

use std::fs::OpenOptions;
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use stasis_linux::memory_file;

use super::*;
use crate::test_data::{Images, START, content, names, store_files, text};
use crate::{
    CHUNK, Chunk, DumpRequest, Index, PacksIn, ProcessMemory, Reader, StreamReport, Writer,
};

const PLACES: [PacksIn; 2] = [PacksIn::Image, PacksIn::Directory];
const THREADS: NonZeroUsize = NonZeroUsize::new(3).unwrap();

/// A file in memory with the contents of a process, as the driver leaves them.
struct Held {
    pid: i32,
    start: u64,
    offset: u64,
    content: Vec<u8>,
    file: File,
}

impl Held {
    fn new(pid: i32, start: u64, offset: u64, content: Vec<u8>) -> Self {
        let held = Self::empty(pid, start, offset, content);
        held.file.write_all_at(&held.content, offset).unwrap();
        held
    }

    fn empty(pid: i32, start: u64, offset: u64, content: Vec<u8>) -> Self {
        let file = memory_file::create(offset + content.len() as u64).unwrap();
        Self {
            pid,
            start,
            offset,
            content,
            file,
        }
    }

    fn contents(&self) -> FileContents<'_> {
        FileContents {
            pid: self.pid,
            start: self.start,
            file: &self.file,
            offset: self.offset,
            bytes: self.content.len() as u64,
        }
    }

    /// Whether its file has the contents, and zeros before and behind them.
    fn is_whole(&self) -> bool {
        let mut expected = vec![0; usize::try_from(self.file.metadata().unwrap().len()).unwrap()];
        let mut found = expected.clone();
        let offset = usize::try_from(self.offset).unwrap();
        expected[offset..][..self.content.len()].copy_from_slice(&self.content);
        self.file.read_exact_at(&mut found, 0).unwrap();
        found == expected
    }
}

/// Random, half empty, equal and empty contents; some end inside of a chunk.
fn held() -> Vec<Held> {
    let mut mixed = [content(1), vec![0; CHUNK], content(3), content(2)].concat();
    mixed.truncate(3 * CHUNK + 5 * PAGE);
    vec![
        Held::new(7, START, 0, [content(3), content(6), content(9)].concat()),
        Held::new(1, START, 4 << 20, mixed),
        Held::new(7, START >> 1, 0, [content(12), content(3)].concat()),
        Held::new(9, START, PAGE as u64, vec![0; CHUNK + PAGE]),
    ]
}

fn contents(held: &[Held]) -> Vec<FileContents<'_>> {
    held.iter().map(Held::contents).collect()
}

fn bytes(held: &[Held]) -> u64 {
    held.iter().map(|held| held.content.len() as u64).sum()
}

/// A whole checkpoint.
fn dump(image: &Path, request: &DumpRequest, held: &[Held]) -> (Index, StreamReport) {
    let mut writer = Writer::create(image, request).unwrap();
    assert_eq!(writer.not_reused(), None);
    let progress = AtomicU64::new(0);
    let stored = store_files(&writer, &contents(held), THREADS, &progress);
    let (processes, report) = stored.unwrap();
    assert_eq!(progress.into_inner(), bytes(held));
    (writer.finish(&processes).unwrap(), report)
}

/// Loads all of a checkpoint into new files.
fn load(image: &Path, request: &DumpRequest, held: &[Held]) -> Result<Vec<Held>, StoreError> {
    let index = Index::read(image).unwrap().unwrap();
    let reader = Reader::open(image, &index, request.directory.as_deref()).unwrap();
    let empty = |held: &Held| Held::empty(held.pid, held.start, held.offset, held.content.clone());
    let new: Vec<_> = held.iter().map(empty).collect();
    let progress = AtomicU64::new(0);
    reader.load_files(&index.processes, &contents(&new), THREADS, &progress)?;
    assert_eq!(progress.into_inner(), bytes(held));
    Ok(new)
}

#[test]
fn what_is_stored_from_files_is_loaded_into_files_from_every_place() {
    for images in [Images::new(), Images::in_memory()] {
        loaded_from_every_place(&images);
    }
}

fn loaded_from_every_place(images: &Images) {
    let held = held();
    for (id, packs_in) in (1..).zip(PLACES) {
        for (id, level) in [(id, None), (10 + id, Some(1))] {
            let mut request = images.request(packs_in, id);
            request.level = level;
            let (index, _) = dump(&images.image(id), &request, &held);
            assert_eq!(Index::read(&images.image(id)).unwrap().unwrap(), index);
            let places = |process: &ProcessMemory| {
                let areas = process.areas.iter();
                let starts: Vec<_> = areas.map(|area| area.start).collect();
                (process.pid, starts)
            };
            let found: Vec<_> = index.processes.iter().map(places).collect();
            let expected = [
                (1, vec![START]),
                (7, vec![START >> 1, START]),
                (9, vec![START]),
            ];
            assert_eq!(found, expected);
            let loaded = load(&images.image(id), &request, &held).unwrap();
            for held in loaded {
                assert!(
                    held.is_whole(),
                    "{packs_in:?} {level:?}: process {}",
                    held.pid
                );
            }
        }
    }
}

#[test]
fn a_damaged_chunk_is_named_with_its_pack_and_offset() {
    let (images, held) = (Images::new(), held());
    for (id, packs_in) in (1..).zip(PLACES) {
        let request = images.request(packs_in, id);
        let (index, _) = dump(&images.image(id), &request, &held);
        let damaged: &Chunk = &index.processes[1].areas[1].chunks[1];
        let pack = index.packs[usize::try_from(damaged.place.pack).unwrap()];
        let directory = match packs_in {
            PacksIn::Image => images.image(id),
            PacksIn::Directory => images.directory(id),
        };
        let path = directory.join(pack.file_name());
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        let at = damaged.place.offset + 5000;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
        let error = load(&images.image(id), &request, &held).err().unwrap();
        let (path, offset) = (path.display(), damaged.place.offset);
        let says = format!("{START:#x} of process 7 cannot be read from {path} at {offset}: its");
        assert!(text(&error).contains(&says), "{error}");
    }
}

/// Makes contents with one page in each chunk, which has its number.
fn one_page_a_chunk(chunks: usize) -> Vec<u8> {
    let mut content = vec![0; chunks * CHUNK];
    for (number, chunk) in content.chunks_mut(CHUNK).enumerate() {
        chunk[..8].copy_from_slice(&(number as u64 + 1).to_le_bytes());
    }
    content
}

#[test]
fn neighbours_lie_side_by_side_in_a_pack() {
    let images = Images::new();
    let held = [Held::new(1, START, 0, one_page_a_chunk(40))];
    let (index, _) = dump(
        &images.image(1),
        &images.request(PacksIn::Directory, 1),
        &held,
    );
    let chunks = &index.processes[0].areas[0].chunks;
    assert_eq!(chunks.len(), 40);
    for piece in chunks.chunks(16) {
        let first = piece[0].place;
        for (number, chunk) in (0..).zip(piece) {
            assert_eq!(chunk.place.pack, first.pack);
            assert_eq!(chunk.place.offset, first.offset + number * PAGE as u64);
        }
    }
}

#[test]
fn what_does_not_fit_its_file_is_refused_and_nothing_is_left() {
    let images = Images::new();
    let held = Held::new(7, START, 0, content(3));
    let progress = AtomicU64::new(0);
    let end = held.file.metadata().unwrap().len();
    for (offset, bytes) in [
        (0, 0),
        (0, 100),
        (100, 4096),
        (end, 4096),
        (0, u64::MAX - 4095),
    ] {
        let writer =
            Writer::create(&images.image(1), &images.request(PacksIn::Directory, 1)).unwrap();
        let contents = FileContents {
            offset,
            bytes,
            ..held.contents()
        };
        let refused = store_files(&writer, &[contents], THREADS, &progress);
        let message = text(&refused.unwrap_err());
        let says =
            "cannot use the file in memory for the contents of process 7 at 0x7f0000000000: ";
        assert!(message.starts_with(says), "{message}");
        drop(writer);
        assert!(!images.directory(1).exists());
        assert_eq!(names(&images.image(1)), [""; 0]);
    }
}

#[test]
fn each_hole_needs_its_file_and_each_file_its_hole() {
    let (images, mut held) = (Images::new(), held());
    let (image, request) = (images.image(1), images.request(PacksIn::Image, 1));
    dump(&image, &request, &held);
    let last = held.pop().unwrap();
    let message = text(&load(&image, &request, &held).err().unwrap());
    assert!(message.contains("process 9 at 0x7f0000000000"), "{message}");
    held.push(last);
    held.push(Held::new(9, START + (1 << 30), 0, content(3)));
    let message = text(&load(&image, &request, &held).err().unwrap());
    assert!(message.contains("the index has no such hole"), "{message}");
}
