//! A pull into an archive, which podman imports, and containerd's CRI plugin and CRI-O
//! restore from: the image as in a directory, with what the engine had put beside it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use stasis_config::Settings;
use stasis_linux::file;

use crate::archive::{self, CHECKPOINT, Compression};
use crate::error::MoveError;
use crate::local::beside::Beside;
use crate::moved::Moved;
use crate::places::Elsewhere;
use crate::pull::engine_files;
use crate::pull::parts::Parts;
use crate::pull::staging::{ENDING, is_there, refuse_used};
use crate::pull::whole::{pull, refuse_full};

/// A pull's directory for an image that is not complete.
const INCOMPLETE: &str = ".checkpoint.stasis-pull";
/// The archive, before it has its name.
const NEW: &str = ".new";
const ZSTD: &str = "zst";
const TAR: &str = "tar";
const BUFFER: usize = 1 << 20;

/// Returns whether a path is to be an archive: `.tar` or `.tar.zst`, and no directory.
pub(crate) fn is_archive(path: &Path) -> bool {
    let is_zstd = ends(path, ZSTD) && ends(&path.with_extension(""), TAR);
    (is_zstd || ends(path, TAR)) && !path.is_dir()
}

fn ends(path: &Path, ending: &str) -> bool {
    path.extension().is_some_and(|found| found == ending)
}

/// Pulls an image into an archive that does not exist yet, by way of a directory. Resumes a pull
/// that was cut off.
pub(crate) fn pull_archive(
    settings: &Settings,
    from: &dyn Elsewhere,
    parts: &Parts,
    into: &Path,
) -> Result<Moved, MoveError> {
    let beside = Beside::begin(into, ENDING)?;
    // A pull that was killed after it had named the archive has left the rest.
    if let Err(error) = refuse_used(into) {
        beside.leave(&BTreeSet::<&str>::new());
        return Err(error);
    }
    match fill(settings, from, parts, &beside) {
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
    settings: &Settings,
    from: &dyn Elsewhere,
    parts: &Parts,
    beside: &Beside,
) -> Result<Moved, MoveError> {
    prepare_resumed_pull(beside)?;
    if !engine_files::fetch(from, &parts.manifest, beside.path())? {
        return Err(MoveError::NoEngine(parts.reference.to_string()));
    }
    // The archive is a second copy.
    let incomplete = beside.path().join(INCOMPLETE);
    let lacking = parts.lacking(|name, bytes| is_there(&incomplete, name, bytes));
    let archive: u64 = parts.files.iter().map(|file| file.bytes).sum();
    refuse_full(parts, beside.path(), lacking.saturating_add(archive))?;
    pull(settings, from, parts, &beside.path().join(CHECKPOINT))
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
    let written = file.and_then(|file| file.sync_all()).inspect_err(|_| {
        // It may fill the disk.
        let _ = file::remove(&new);
    });
    written.map_err(failed())?;
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

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn an_archive_that_cannot_be_written_leaves_nothing() {
        let all = tempfile::tempdir().unwrap();
        let into = all.path().join("pulled.tar");
        let beside = Beside::begin(&into, ENDING).unwrap();
        // A socket cannot be packed.
        let _socket = UnixListener::bind(beside.path().join("socket")).unwrap();
        write(&beside, &into).unwrap_err();
        assert!(!into.exists() && !beside.path().join(NEW).exists());
    }
}
