//! Data and stores for tests.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use tempfile::TempDir;

use crate::{
    Area, Buffer, CHUNK, Chunk, DumpRequest, FileContents, ImageId, Index, PAGE, PacksIn,
    ProcessMemory, Reader, StoreError, StoredPages, StreamReport, Writer,
};

pub(crate) const PID: i32 = 7;
pub(crate) const START: u64 = 0x7f00_0000_0000;

pub(crate) fn request(directory: Option<PathBuf>, id: u128) -> DumpRequest {
    DumpRequest {
        image_id: ImageId::new(id),
        directory,
        threads: 2,
        level: None,
        progress: None,
    }
}

/// Contents of a chunk that depend on the seed: every third is random, the others are half zero and
/// can be compressed.
pub(crate) fn content(seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; CHUNK];
    for page in bytes.chunks_mut(PAGE) {
        if seed.is_multiple_of(3) {
            random.fill(page);
        } else if random.bool() {
            random.fill(&mut page[..PAGE / 4]);
            page[PAGE - 1] = 1;
        }
    }
    bytes
}

/// The start of an area with as many of these contents as can be stored, and the error of the next.
pub(crate) fn try_store(
    writer: &Writer,
    seeds: &[u64],
) -> (ProcessMemory, Result<StreamReport, StoreError>) {
    let mut area = Area {
        start: START,
        bytes: (seeds.len() * CHUNK) as u64,
        chunks: Vec::new(),
    };
    let result = writer.stream().and_then(|mut stream| {
        let mut buffer = Buffer::new();
        for (number, seed) in (0..).zip(seeds) {
            buffer.as_mut_slice().copy_from_slice(&content(*seed));
            let pages = StoredPages::of(buffer.as_slice()).unwrap();
            let (checksum, place) = stream.put(buffer.as_slice(), &pages)?;
            area.chunks.push(Chunk {
                number,
                pages,
                checksum,
                place,
            });
        }
        stream.close()
    });
    let areas = vec![area];
    (ProcessMemory { pid: PID, areas }, result)
}

pub(crate) fn store(writer: &Writer, seeds: &[u64]) -> (ProcessMemory, StreamReport) {
    let (process, result) = try_store(writer, seeds);
    (process, result.unwrap())
}

/// Stores contents that are complete from the beginning.
pub(crate) fn store_files(
    writer: &Writer,
    contents: &[FileContents<'_>],
    threads: NonZeroUsize,
    progress: &AtomicU64,
) -> Result<(Vec<ProcessMemory>, StreamReport), StoreError> {
    writer.store_coming(threads, progress, |coming| {
        let mut contents = contents.iter();
        contents.try_for_each(|contents| coming.add(contents, threads))
    })
}

/// Reads all chunks and compares them with these contents.
pub(crate) fn verify(reader: &Reader, process: &ProcessMemory, seeds: &[u64]) {
    let mut buffer = Buffer::new();
    for (chunk, seed) in process.areas[0].chunks.iter().zip(seeds) {
        let read = reader.load(PID, START, chunk, &mut buffer).unwrap();
        let read = read.verified().unwrap();
        let mut whole = vec![0; CHUNK];
        let mut from = 0;
        for run in chunk.pages.runs() {
            whole[run.offset..][..run.bytes].copy_from_slice(&read[from..][..run.bytes]);
            from += run.bytes;
        }
        assert!(whole == content(*seed), "chunk {}", chunk.number);
    }
}

/// A store with images beside it, on a disk: the file system of the build.
pub(crate) struct Images(TempDir);

impl Images {
    pub(crate) fn new() -> Self {
        Self(TempDir::new_in(env!("CARGO_MANIFEST_DIR")).unwrap())
    }

    /// Makes one in memory.
    pub(crate) fn in_memory() -> Self {
        Self(TempDir::new_in("/dev/shm").unwrap())
    }

    pub(crate) fn store(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn directory(&self, id: u128) -> PathBuf {
        self.0.path().join(ImageId::new(id).to_string())
    }

    /// An image directory.
    pub(crate) fn image(&self, id: u128) -> PathBuf {
        let image = self.0.path().join(format!("image-{id}"));
        std::fs::create_dir_all(&image).unwrap();
        image
    }

    pub(crate) fn request(&self, packs_in: PacksIn, id: u128) -> DumpRequest {
        let apart = packs_in == PacksIn::Directory;
        request(apart.then(|| self.directory(id)), id)
    }

    /// A whole dump.
    pub(crate) fn dump(
        &self,
        request: &DumpRequest,
        id: u128,
        seeds: &[u64],
    ) -> (Index, StreamReport) {
        let mut writer = Writer::create(&self.image(id), request).unwrap();
        assert_eq!(writer.not_reused(), None);
        let (process, report) = store(&writer, seeds);
        (writer.finish(&[process]).unwrap(), report)
    }

    /// Reads all of a checkpoint.
    pub(crate) fn verify(&self, id: u128, seeds: &[u64]) {
        let index = Index::read(&self.image(id)).unwrap().unwrap();
        let reader = Reader::open(&self.image(id), &index, Some(&self.directory(id))).unwrap();
        verify(&reader, &index.processes[0], seeds);
    }
}

/// An error with its causes.
pub(crate) fn text(error: &StoreError) -> String {
    stasis_linux::error_chain(error)
}

/// The names in a directory, in order.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
