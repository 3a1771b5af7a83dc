//! Restricts the images that may be restored: an image's maker decides what runs as root here.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// The link by which CRIU finds a directory of earlier memory.
const PARENT: &str = "parent";
/// The most images that may refer to each other.
const MAX_PARENTS: usize = 64;
/// As many links as the kernel follows in a path (path_resolution(7)).
const MAX_LINKS: usize = 40;
/// Far more files than CRIU writes for the most processes that fit into a machine.
const MAX_FILES: usize = 1_000_000;

const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Why an image may not be restored.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum NotAllowed {
    #[error(
        "the image {image} is not below a directory from which images may be restored \
         (restore.images: {})", allowed.join(", ")
    )]
    Elsewhere {
        image: PathBuf,
        /// The directories, and what is wrong with those that cannot be looked at.
        allowed: Vec<String>,
    },
    /// There is no image. Reported here and not by the low-level runtime, since an image could be
    /// put there before that looks.
    #[error("there is no image in {image}")]
    NoImage { image: PathBuf },
    #[error("{path} belongs to user {uid} and has mode {mode:o}: others than root may write it")]
    NotRoots { path: PathBuf, uid: u32, mode: u32 },
    #[error("{path} is neither a file nor a directory, and no image has such")]
    OtherFile { path: PathBuf },
    #[error("{path} is part of too many images, or of one with too many files")]
    TooMuch { path: PathBuf },
    #[error("cannot look at {path}")]
    Io { path: PathBuf, source: io::Error },
}

/// Checks an image, and those that it refers to, unless the settings allow all (`allowed` is
/// empty). Returns the path by which it is to be opened from now on: without links, so that only
/// root can change it after this. If an image refers to others, CRIU follows a link, so no other
/// user may be able to change that link's target, either.
pub fn admit(allowed: &[PathBuf], image: &Path) -> Result<PathBuf, NotAllowed> {
    if allowed.is_empty() {
        return Ok(image.to_owned());
    }
    let first = fs::canonicalize(image).map_err(io_error(image))?;
    let mut next = Some(first.clone());
    for _ in 0..MAX_PARENTS {
        let Some(image) = next else {
            return Ok(first);
        };
        next = admit_one(allowed, &image)?;
    }
    Err(NotAllowed::TooMuch { path: first })
}

/// Checks a directory, a path without links, and all above it: only root may be able to put an
/// image there.
pub fn refuse_exposed(directory: &Path) -> Result<(), NotAllowed> {
    for directory in directory.ancestors() {
        let found = directory.symlink_metadata().map_err(io_error(directory))?;
        refuse_others(directory, &found)?;
    }
    Ok(())
}

/// Checks one image, and returns the image that it refers to. Both are paths without links.
fn admit_one(allowed: &[PathBuf], image: &Path) -> Result<Option<PathBuf>, NotAllowed> {
    refuse_elsewhere(allowed, image)?;
    refuse_exposed(image)?;
    let mut parent = None;
    let entries = fs::read_dir(image).map_err(io_error(image))?;
    for (number, entry) in entries.enumerate() {
        let path = entry.map_err(io_error(image))?.path();
        if number >= MAX_FILES {
            return Err(NotAllowed::TooMuch { path });
        }
        let found = path.symlink_metadata().map_err(io_error(&path))?;
        if found.is_symlink() && path.file_name().is_some_and(|name| name == PARENT) {
            parent = Some(follow(image, &path)?);
        } else if found.is_file() || found.is_dir() {
            refuse_others(&path, &found)?;
        } else {
            return Err(NotAllowed::OtherFile { path });
        }
    }
    Ok(parent)
}

/// Refuses a path without links that is not below one of these directories; none allow all.
pub fn refuse_elsewhere(allowed: &[PathBuf], image: &Path) -> Result<(), NotAllowed> {
    if allowed.is_empty() {
        return Ok(());
    }
    let mut named = Vec::new();
    for directory in allowed {
        match fs::canonicalize(directory) {
            Ok(found) if image.starts_with(&found) => return Ok(()),
            Ok(_) => named.push(directory.display().to_string()),
            Err(error) => named.push(format!("{}, unusable: {error}", directory.display())),
        }
    }
    Err(NotAllowed::Elsewhere {
        image: image.to_owned(),
        allowed: named,
    })
}

/// Follows a link as the kernel does, step by step: only root may be able to change any of them.
fn follow(directory: &Path, link: &Path) -> Result<PathBuf, NotAllowed> {
    let (mut at, mut links) = (directory.to_owned(), 0);
    let mut rest = target(link)?;
    while let Some(next) = rest.pop() {
        let path = at.join(&next);
        match next.components().next() {
            Some(Component::ParentDir) => {
                at.pop();
                continue;
            }
            Some(Component::CurDir) | None => continue,
            _ => {}
        }
        let found = path.symlink_metadata().map_err(io_error(&path))?;
        if !found.is_symlink() {
            refuse_others(&path, &found)?;
            at = path;
            continue;
        }
        links += 1;
        if found.uid() != 0 {
            return Err(not_roots(&path, &found));
        }
        if links > MAX_LINKS {
            return Err(NotAllowed::TooMuch { path });
        }
        rest.extend(target(&path)?);
    }
    Ok(at)
}

/// Returns the steps of a link's target, the first one last.
fn target(link: &Path) -> Result<Vec<PathBuf>, NotAllowed> {
    let target = fs::read_link(link).map_err(io_error(link))?;
    let steps = target.components().rev();
    Ok(steps.map(|step| PathBuf::from(step.as_os_str())).collect())
}

/// Refuses a path that others can change. In a sticky directory they cannot exchange root's.
fn refuse_others(path: &Path, found: &Metadata) -> Result<(), NotAllowed> {
    let is_sticky = found.is_dir() && found.mode() & STICKY != 0;
    if found.uid() == 0 && (is_sticky || found.mode() & WRITABLE_BY_OTHERS == 0) {
        return Ok(());
    }
    Err(not_roots(path, found))
}

fn not_roots(path: &Path, found: &Metadata) -> NotAllowed {
    NotAllowed::NotRoots {
        path: path.to_owned(),
        uid: found.uid(),
        mode: found.mode() & 0o7777,
    }
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> NotAllowed {
    let path = path.to_owned();
    |source| NotAllowed::Io { path, source }
}

#[cfg(test)]
mod tests;
