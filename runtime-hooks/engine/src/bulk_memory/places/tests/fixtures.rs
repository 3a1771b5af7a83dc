//! Machines, and nodes with contents, for the tests of this crate and of the command line, which
//! includes this file: tests of another crate are not seen.
#![allow(dead_code, reason = "each crate uses some of it")]

use std::fs::{self, File};
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use stasis_config::Settings;
use stasis_engine::low_level::criu_version::CriuVersion;
use stasis_engine::preflight::capabilities::{Capabilities, Cgroups, Criu, Kernel};
use stasis_memory_store::{
    CHUNK, Chunk, DumpRequest, FileContents, ImageId, Index, PAGE, StoreError, Writer,
};

pub(crate) const START: u64 = 0x7f00_0000_0000;
/// The files that are mapped over the holes of [`store_holes`], bytes: whole huge pages.
pub(crate) const FILES: u64 = 5 * CHUNK as u64;

/// A machine that lacks nothing.
pub(crate) fn capable() -> Capabilities {
    Capabilities {
        kernel: Kernel {
            release: "6.18.0".to_owned(),
            page_size: PAGE,
        },
        cgroups: Cgroups::V2,
        criu: Criu::Version(CriuVersion::NEEDED),
        plugin: Some("/plugin.so".into()),
    }
}

/// A directory for contents, and settings that name it.
pub(crate) struct Node {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) settings: Settings,
    pub(crate) apart: PathBuf,
}

pub(crate) fn node() -> Node {
    node_in(&std::env::temp_dir())
}

pub(crate) fn node_in(parent: &Path) -> Node {
    let directory = tempfile::tempdir_in(parent).unwrap();
    let mut settings = Settings::default();
    let apart = directory.path().join("apart");
    settings.gpu_contents.directory = apart.clone();
    settings.gpu_contents.threads = 3;
    settings.paths.state_dir = directory.path().join("run");
    settings.paths.log_dir = directory.path().join("log");
    fs::create_dir_all(&apart).unwrap();
    Node {
        directory,
        settings,
        apart,
    }
}

/// The contents of a checkpoint whose image has holes alone, made as the engine does.
pub(crate) fn store_holes(image: &Path, directory: Option<PathBuf>, id: u8) -> Index {
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
    let mut writer = Writer::create(image, &request(directory, id)).unwrap();
    // By one thread, so that what two processes have is stored once.
    let one = NonZeroUsize::MIN;
    let stored = writer.store_coming(one, &AtomicU64::new(0), |coming| {
        let mut contents = contents.iter();
        contents.try_for_each(|contents| coming.add(contents, one))
    });
    let stored: Result<_, StoreError> = stored;
    writer.finish(&stored.unwrap().0).unwrap()
}

pub(crate) fn request(directory: Option<PathBuf>, id: u8) -> DumpRequest {
    DumpRequest {
        image_id: ImageId::new(id.into()),
        directory,
        threads: 1,
        level: None,
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
