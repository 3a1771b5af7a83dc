//! `stasis pull` into an archive, which podman imports, and containerd's CRI plugin and CRI-O
//! restore from: the image as in a directory, with what the engine had put beside it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use stasis_linux::file;
use stasis_oci_image::Reference;
use stasis_transfer::Elsewhere;
use stasis_transfer::archive::{self, Compression};

use super::beside::Beside;
use super::engine::{self, CHECKPOINT};
use super::report::Moved;
use crate::command_error::MoveError;

const ENDING: &str = ".stasis-pull";
/// A pull's directory for an image that is not complete.
const INCOMPLETE: &str = ".checkpoint.stasis-pull";
/// The archive, before it has its name.
const NEW: &str = ".new";
const ZSTD: &str = "zst";
const TAR: &str = "tar";
const BUFFER: usize = 1 << 20;

/// Returns whether a path is to be an archive: `.tar` or `.tar.zst`, and no directory.
pub(super) fn is_archive(path: &Path) -> bool {
    let is_zstd = ends(path, ZSTD) && ends(&path.with_extension(""), TAR);
    (is_zstd || ends(path, TAR)) && !path.is_dir()
}

fn ends(path: &Path, ending: &str) -> bool {
    path.extension().is_some_and(|found| found == ending)
}

/// Pulls an image into an archive that does not exist yet, by way of a directory, into which `pull`
/// pulls it. Resumes a pull that was cut off.
pub(super) fn pull_archive(
    from: &dyn Elsewhere,
    reference: &Reference,
    into: &Path,
    pull: impl FnOnce(&Path) -> Result<Moved, MoveError>,
) -> Result<Moved, MoveError> {
    let beside = Beside::begin(into, ENDING)?;
    // A pull that was killed after it had named the archive has left the rest.
    if let Err(error) = refuse_used(into) {
        beside.leave(&BTreeSet::<&str>::new());
        return Err(error);
    }
    match fill(from, reference, &beside, pull) {
        Ok(moved) => {
            let image = write(&beside, into)?;
            beside.leave(&BTreeSet::<&str>::new());
            Ok(Moved { image, ..moved })
        }
        Err(error) => {
            beside.leave(&BTreeSet::from([INCOMPLETE]));
            Err(error)
        }
    }
}

/// Fetches all that the archive is to have.
fn fill(
    from: &dyn Elsewhere,
    reference: &Reference,
    beside: &Beside,
    pull: impl FnOnce(&Path) -> Result<Moved, MoveError>,
) -> Result<Moved, MoveError> {
    prepare_resumed_pull(beside)?;
    let (manifest, digest) = from.manifest(reference.tag())?;
    if !engine::fetch(from, &manifest, beside.path())? {
        return Err(MoveError::NoEngine(reference.to_string()));
    }
    let moved = pull(&beside.path().join(CHECKPOINT))?;
    match moved.digest == digest.to_string() {
        true => Ok(moved),
        false => Err(MoveError::NoImage {
            reference: reference.to_string(),
            what: "its tag now names another one; pull it again".to_owned(),
        }),
    }
}

/// Has the pull resume the image that a killed pull has left.
fn prepare_resumed_pull(beside: &Beside) -> Result<(), MoveError> {
    let [image, incomplete] = [CHECKPOINT, INCOMPLETE].map(|name| beside.path().join(name));
    if image.is_dir() && !incomplete.exists() {
        fs::rename(&image, &incomplete).map_err(MoveError::io("rename", &image))?;
    }
    beside.keep_only(&BTreeSet::from([INCOMPLETE]))
}

/// Writes the archive, which gets its name once it is whole and on disk.
fn write(beside: &Beside, into: &Path) -> Result<PathBuf, MoveError> {
    let failed = || MoveError::io("write the archive", into);
    let into = std::path::absolute(into).map_err(failed())?;
    let new = beside.path().join(NEW);
    let file = file::create_new(&new).and_then(|file| pack(beside.path(), &into, file));
    file.and_then(|file| file.sync_all()).map_err(failed())?;
    refuse_used(&into)?;
    fs::rename(&new, &into).map_err(failed())?;
    let parent = into.parent().unwrap_or(&into);
    file::sync_directory(parent).map_err(failed())?;
    Ok(into)
}

fn pack(from: &Path, named: &Path, into: File) -> io::Result<File> {
    let is_meant = |name: &str| name != NEW;
    let compression = match ends(named, ZSTD) {
        true => Compression::Zstd,
        false => Compression::None,
    };
    let mut into = BufWriter::with_capacity(BUFFER, into);
    archive::pack(from, is_meant, compression, &mut into)?;
    into.into_inner().map_err(io::IntoInnerError::into_error)
}

fn refuse_used(path: &Path) -> Result<(), MoveError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(MoveError::io("find", path)(error)),
        Ok(_) => Err(MoveError::There(path.to_owned())),
    }
}
