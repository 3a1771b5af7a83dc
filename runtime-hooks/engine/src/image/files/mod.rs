//! The files of an image, as its manifest lists them: with length and contents.
//!
//! A manifest lists the files that a restore reads. CRIU gives all its images names that end in
//! `.img`; statistics and its cache of paths have others, as have logs (criu/image-desc.c). A
//! restore changes none of them, unless its caller says `--auto-dedup`, which uses them up.
//! `descriptors.json` is runc's and crun's. Packs of bulk memory have a hash for each chunk in the
//! index, so their length is enough. Other files of the directory (`config.dump`, `rootfs-diff.tar`
//! and such of engines) are not ours.

mod error;
pub mod hash;

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use blake3::Hash;
use rustix::fs::Advice;
use serde::{Deserialize, Serialize};
use stasis_linux::file;
use stasis_memory_store::{INDEX_FILE, is_pack_name};

pub use error::FileError;

/// CRIU writes some ten files for each process, and one for each thread.
const MAX_FILES: usize = 1 << 19;
/// The end of the name of each of CRIU's images.
const IMAGE: &str = ".img";
/// The user that can change any file.
const ROOT: u32 = 0;

/// A file of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageFile {
    /// Its name in the image directory.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// The BLAKE3 hash of its contents, hexadecimal; none for a pack of bulk memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blake3: Option<String>,
}

/// Lists the files of an image that is complete, in the order of their names. `threads` read it.
pub fn list(image: &Path, threads: usize) -> Result<Vec<ImageFile>, FileError> {
    let mut found = find(image).map_err(io_error(image))?;
    found.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    let hashes = each(&found, threads, |found, threads| {
        let (file, _) = open(image, &found.name)?;
        hash_of(image, found, &file, threads)
    })?;
    for (file, hash) in found.iter_mut().zip(hashes) {
        file.blake3 = hash.map(|hash| hash.to_hex().to_string());
    }
    Ok(found)
}

fn find(image: &Path) -> io::Result<Vec<ImageFile>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(image)? {
        let entry = entry?;
        // CRIU gives no names that are not UTF-8.
        if let Some(name) = entry
            .file_name()
            .into_string()
            .ok()
            .filter(|name| is_listed(name))
        {
            found.push(ImageFile {
                name,
                bytes: entry.metadata()?.len(),
                blake3: None,
            });
        }
    }
    Ok(found)
}

/// Refuses an image with a fifo, a device or such in the place of a file that CRIU or runc would
/// open, whether it is listed or not: they would wait, or read the device. A link may lead to a
/// file, since images without a manifest are as their owners have made them.
pub fn refuse_no_files(image: &Path) -> Result<(), FileError> {
    for entry in file::entries(image).map_err(io_error(image))? {
        let path = entry.map_err(io_error(image))?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let is_other = || fs::metadata(&path).is_ok_and(|found| !found.is_file());
        if name.is_some_and(is_listed) && is_other() {
            let what = io::Error::new(io::ErrorKind::InvalidData, "it is not a regular file");
            return Err(io_error(&path)(what));
        }
    }
    Ok(())
}

/// Verifies that every listed file exists and is as it was: a regular file of the directory's owner
/// or of root, with its length and contents. Each is opened once. `threads` read the image.
///
/// # Errors
/// [`FileError`]: of a file that is not.
pub fn verify(image: &Path, listed: &[ImageFile], threads: usize) -> Result<(), FileError> {
    let owner = fs::metadata(image).map_err(io_error(image))?.uid();
    let verified = each(listed, threads, |listed, threads| {
        let (file, metadata) = open(image, &listed.name)?;
        check(image, listed, &metadata, owner)?;
        let found = hash_of(image, listed, &file, threads)?;
        let found = found.map(|hash| hash.to_hex().to_string());
        if found != listed.blake3 {
            let path = image.join(&listed.name);
            return Err(FileError::Contents { path });
        }
        Ok(())
    });
    verified.map(drop)
}

fn check(
    image: &Path,
    listed: &ImageFile,
    metadata: &Metadata,
    owner: u32,
) -> Result<(), FileError> {
    let path = image.join(&listed.name);
    if ![owner, ROOT].contains(&metadata.uid()) {
        let found = metadata.uid();
        return Err(FileError::Owner { path, found, owner });
    }
    if metadata.len() != listed.bytes {
        return Err(FileError::Length {
            path,
            found: metadata.len(),
            listed: listed.bytes,
        });
    }
    Ok(())
}

/// Whether every listed file exists, with its length.
pub(crate) fn have_lengths(image: &Path, listed: &[ImageFile]) -> bool {
    listed.iter().all(|listed| {
        let found = image.join(&listed.name).symlink_metadata();
        found.is_ok_and(|found| found.is_file() && found.len() == listed.bytes)
    })
}

/// Checks the rules that the types do not express.
///
/// # Errors
/// The problem of the list.
pub(crate) fn check_list(listed: &[ImageFile]) -> Result<(), String> {
    if listed.len() > MAX_FILES {
        return Err("it lists more files than there can be".to_owned());
    }
    let mut names = BTreeSet::new();
    for ImageFile { name, .. } in listed {
        if !is_listed(name) || name.contains('/') || !names.insert(name) {
            return Err(format!("the file {name:?} is impossible or listed twice"));
        }
    }
    Ok(())
}

/// Returns the paths of the images that CRIU reads.
pub(crate) fn of_criu(image: &Path) -> Result<Vec<PathBuf>, FileError> {
    let mut found = find(image).map_err(io_error(image))?;
    found.retain(|file| file.name.ends_with(IMAGE));
    Ok(found.iter().map(|file| image.join(&file.name)).collect())
}

/// Whether a restore reads the file.
pub(crate) fn is_listed(name: &str) -> bool {
    name.ends_with(IMAGE) || name == "descriptors.json" || name == INDEX_FILE || is_pack_name(name)
}

/// Calls `work` with each of the files, in several threads: the large ones one after the other,
/// each by all `threads`, then the others at the same time, each by one.
fn each<T: Send>(
    files: &[ImageFile],
    threads: usize,
    work: impl Fn(&ImageFile, usize) -> Result<T, FileError> + Sync,
) -> Result<Vec<T>, FileError> {
    let is_large = |at: &usize| files[*at].bytes > hash::PART;
    let (large, others): (Vec<_>, Vec<_>) = (0..files.len()).partition(is_large);
    let mut done = Vec::new();
    for at in large {
        done.push((at, work(&files[at], threads)?));
    }
    let next = AtomicUsize::new(0);
    let in_one = || {
        let mut done = Vec::new();
        while let Some(at) = others.get(next.fetch_add(1, Ordering::Relaxed)) {
            done.push((*at, work(&files[*at], 1)?));
        }
        Ok(done)
    };
    for one in hash::in_threads(threads.min(others.len()), in_one) {
        done.extend(one?);
    }
    done.sort_unstable_by_key(|(at, _)| *at);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

/// Drops the files from the kernel's page cache: they are read from the disk.
pub(crate) fn forget_cached(image: &Path, listed: &[ImageFile]) -> Result<(), FileError> {
    for listed in listed {
        let (file, _) = open(image, &listed.name)?;
        let forgotten = rustix::fs::fadvise(&file, 0, None, Advice::DontNeed);
        forgotten.map_err(|error| io_error(&image.join(&listed.name))(error.into()))?;
    }
    Ok(())
}

/// Returns a file's hash; `None` for a pack, whose hash is not needed.
fn hash_of(
    image: &Path,
    of: &ImageFile,
    file: &File,
    threads: usize,
) -> Result<Option<Hash>, FileError> {
    if is_pack_name(&of.name) {
        return Ok(None);
    }
    let hash = hash::of_file(file, of.bytes, threads);
    hash.map(Some).map_err(io_error(&image.join(&of.name)))
}

fn open(image: &Path, name: &str) -> Result<(File, Metadata), FileError> {
    let path = image.join(name);
    let opened = file::open(&path).map_err(io_error(&path))?;
    let file = opened.ok_or_else(|| FileError::Missing { path: path.clone() })?;
    let metadata = file.metadata().map_err(io_error(&path))?;
    Ok((file, metadata))
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> FileError {
    let path = path.to_owned();
    |source| FileError::Io { path, source }
}

#[cfg(test)]
mod tests;
