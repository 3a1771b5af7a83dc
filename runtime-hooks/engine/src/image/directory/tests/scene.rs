//! The states of a directory before an actor works in it, and which image it has then.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use stasis_config::Settings;
use stasis_gpu::cuda::gpu_use::CudaProcess;
use stasis_host::directory_lock::Locked;
use stasis_host::file_lock::unlock;

use super::super::lock::lock_now;
use super::super::*;
use super::begin;
use super::change::change;
use crate::image::files;
use crate::image::manifest::Manifest;

/// The files, in the order in which CRIU writes them.
const FILES: [&str; 3] = ["core-1.img", "pages-1.img", INVENTORY];
/// The image that was first there.
const EARLIER: &str = "earlier";
/// A later image, which is not in its place yet.
const WAITING: &str = "waiting";

/// The state of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    Nothing,
    /// An image.
    Earlier,
    /// An image, and the partial one of a killed writer.
    Half,
    /// The same with a whole one.
    Left,
    /// A committed image.
    Complete,
    /// A committed image, half of it moved up.
    Moving,
}

impl Before {
    pub(super) const ALL: [Self; 6] = [
        Self::Nothing,
        Self::Earlier,
        Self::Half,
        Self::Left,
        Self::Complete,
        Self::Moving,
    ];

    /// Returns the image of the directory.
    pub(super) fn image(self) -> Option<&'static str> {
        match self {
            Self::Nothing => None,
            Self::Earlier | Self::Half => Some(EARLIER),
            Self::Left | Self::Complete | Self::Moving => Some(WAITING),
        }
    }

    pub(super) fn make(self, directory: &Path) {
        if self == Self::Nothing {
            return;
        }
        write_image(directory, EARLIER).unwrap();
        if self == Self::Earlier {
            return;
        }
        let image = begin(directory).unwrap();
        write_image(image.path(), WAITING).unwrap();
        unlock(&image.lock).unwrap();
        let [new, complete, moving, _] = places(directory);
        match self {
            Self::Half => fs::remove_file(new.join(INVENTORY)).unwrap(),
            Self::Complete => fs::rename(new, complete).unwrap(),
            Self::Moving => {
                for file in FILES {
                    fs::remove_file(directory.join(file)).unwrap();
                }
                fs::rename(new, &moving).unwrap();
                fs::rename(moving.join(FILES[0]), directory.join(FILES[0])).unwrap();
            }
            Self::Nothing | Self::Earlier | Self::Left => {}
        }
    }
}

/// Writes an image as CRIU and a checkpoint do.
pub(super) fn write_image(into: &Path, name: &str) -> io::Result<()> {
    let mut manifest = Manifest::new(name, "2026-11-27T06:00:00Z".into(), "580".into());
    manifest.processes = vec![CudaProcess {
        pid: 1,
        name: "counter".into(),
        gpus: Vec::new(),
    }];
    let describe = |manifest: &Manifest| change(|| manifest.write(into).map_err(io::Error::other));
    describe(&manifest)?;
    for file in FILES {
        change(|| fs::write(into.join(file), text(name)))?;
    }
    manifest.files = Some(files::list(into, 1).map_err(io::Error::other)?);
    describe(&manifest)
}

/// Returns some blocks of a file system.
fn text(name: &str) -> String {
    format!("{name}\n").repeat(2000)
}

/// Returns the name of an image, all of which has to exist; `None` if there is none.
pub(super) fn name_of(image: &Path) -> Option<String> {
    if !has_inventory(image) {
        return None;
    }
    let manifest = Manifest::read(image).unwrap().unwrap();
    files::verify(image, manifest.files.as_deref().unwrap_or_default(), 1).unwrap();
    for file in FILES {
        let found = fs::read_to_string(image.join(file)).unwrap();
        assert!(found == text(&manifest.container), "{file}: {found:.40}");
    }
    Some(manifest.container)
}

/// Returns the image that the next reader gets; the next writer finds nothing else.
pub(super) fn next_finds(directory: &Path) -> Option<String> {
    until_unlocked(directory);
    let found = {
        let opened = open(&Settings::default(), directory).unwrap();
        name_of(opened.path())
    };
    until_unlocked(directory);
    let image = begin(directory).unwrap();
    assert_eq!(super::names(image.path()), [BOOT.to_owned()].into());
    unlock(&image.lock).unwrap();
    fs::remove_dir_all(image.path()).unwrap();
    assert_eq!(name_of(directory), found);
    let files = FILES.into_iter().chain([crate::image::manifest::FILE_NAME]);
    let expected: BTreeSet<_> = files.map(str::to_owned).collect();
    let left = super::names(directory);
    match found {
        Some(_) => assert_eq!(left, expected),
        None => assert!(left.is_empty(), "{left:?}"),
    }
    found
}

/// A process that another test has just started may hold the lock of a failed writer for a moment,
/// and would hold this one if it were only closed.
pub(super) fn until_unlocked(directory: &Path) {
    loop {
        match lock_now(&directory.join(NEW)).unwrap() {
            Locked::Held => std::thread::yield_now(),
            Locked::Ours(lock) => return unlock(&lock).unwrap(),
            Locked::Missing => return,
        }
    }
}
