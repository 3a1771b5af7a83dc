//! Files that are replaced whole or not at all, and read up to a limit.

use std::fs::{self, DirEntry, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, OFlags, fstat};
use rustix::io::Errno;

/// The possible states of a replaced file after a failure of the *machine*. After a failure of the
/// program alone it is always the old file or the new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// The old file, the new one, or an empty one: for contents that are worthless, or can be made
    /// again, after a crash of the machine.
    Volatile,
    /// Contents and name are on disk when the call returns.
    Durable,
}

/// The owner and mode of a replaced file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Our user alone: mode 0600.
    Private,
    /// Readable by all: mode 0644.
    Public,
    /// Owner and mode of the file that is replaced.
    AsBefore,
}

/// Writes a file, or replaces it: a program that opens `path` finds the old contents or the new
/// ones. A symbolic link at `path` is replaced, not followed. One caller at a time: the
/// contents are written to `.NAME.new` beside it first.
///
/// # Errors
/// An I/O error; the old file is still there then.
pub fn replace(
    path: &Path,
    contents: &[u8],
    access: Access,
    durability: Durability,
) -> io::Result<()> {
    let staged = staged(path)?;
    remove(&staged)?;
    let write = || {
        let mut file = create_new(&staged)?;
        file.write_all(contents)?;
        match access {
            Access::Private => {}
            Access::Public => file.set_permissions(Permissions::from_mode(0o644))?,
            Access::AsBefore => {
                let before = fs::symlink_metadata(path)?;
                fchown(&file, Some(before.uid()), Some(before.gid()))?;
                file.set_permissions(Permissions::from_mode(before.mode() & 0o7777))?;
            }
        }
        if durability == Durability::Durable {
            file.sync_all()?;
        }
        fs::rename(&staged, path)
    };
    let written = write();
    if written.is_err() {
        let _ = fs::remove_file(&staged);
    }
    written?;
    if durability == Durability::Durable {
        sync_directory(parent(path))?;
    }
    Ok(())
}

/// Creates a file of our own, mode 0600, for writing.
///
/// # Errors
/// An I/O error; [`io::ErrorKind::AlreadyExists`] if the name exists.
pub fn create_new(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)
}

/// The name of a file's new contents until they are complete.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] for a path without a file name.
pub fn staged(path: &Path) -> io::Result<PathBuf> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().ok_or(io::ErrorKind::InvalidInput)?);
    name.push(".new");
    Ok(path.with_file_name(name))
}

/// Makes the names in a directory survive a crash of the machine.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Opens a regular file of an untrusted directory for reading: follows no link and does not wait
/// for the other end of a fifo. `None` if there is no such entry.
///
/// # Errors
/// An I/O error, or [`io::ErrorKind::InvalidData`] for anything but a regular file.
pub fn open(path: &Path) -> io::Result<Option<File>> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    match if_exists(opened) {
        Ok(Some(file)) if !file.metadata()?.is_file() => Err(not_a_file()),
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => Err(not_a_file()),
        other => other,
    }
}

/// Opens for reading a file that was found without opening it (`O_PATH`). `None` for anything but a
/// regular file: opening a device may do anything.
pub fn open_found(found: &OwnedFd) -> io::Result<Option<File>> {
    if FileType::from_raw_mode(fstat(found)?.st_mode) != FileType::RegularFile {
        return Ok(None);
    }
    // The link in /proc opens the inode that fstat checked, even if its name is another file now.
    File::open(format!("/proc/self/fd/{}", found.as_raw_fd())).map(Some)
}

pub(crate) fn not_a_file() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it is not a regular file")
}

/// Reads a file as [`open`] and [`read_limited`] do; `None` if there is no such file.
///
/// # Errors
/// An I/O error, or [`io::ErrorKind::InvalidData`] for anything but a regular file of at most
/// `limit` bytes.
pub fn read(path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let file = open(path)?;
    file.map(|file| read_limited(&file, limit)).transpose()
}

/// Reads the rest of a file that has no more than `limit` bytes.
///
/// # Errors
/// An I/O error, or the error of [`check_size`].
pub fn read_limited(file: &File, limit: u64) -> io::Result<Vec<u8>> {
    // Reads nothing of a file whose size is beyond the limit; files in /proc have no size.
    check_size(file.metadata()?.len(), limit)?;
    let mut bytes = Vec::new();
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    check_size(bytes.len() as u64, limit)?;
    Ok(bytes)
}

/// Checks whether a file of this size may be read, and so whether it may be written.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] for a size beyond `limit`.
pub fn check_size(bytes: u64, limit: u64) -> io::Result<()> {
    if bytes > limit {
        return Err(too_large(limit));
    }
    Ok(())
}

pub(crate) fn too_large(limit: u64) -> io::Error {
    let text = format!("it is larger than {limit} bytes");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Whether a path still leads to this open file: another one may have removed or replaced it.
#[must_use]
pub fn is_at(file: &File, path: &Path) -> bool {
    let id = |found: fs::Metadata| (found.dev(), found.ino());
    let there = path.symlink_metadata().map(id);
    there.is_ok_and(|there| file.metadata().is_ok_and(|held| id(held) == there))
}

/// Removes a file; its absence is no error.
pub fn remove(path: &Path) -> io::Result<()> {
    if_exists(fs::remove_file(path)).map(drop)
}

/// Returns the entries of a directory; none if it does not exist.
pub fn entries(directory: &Path) -> io::Result<impl Iterator<Item = io::Result<DirEntry>>> {
    Ok(if_exists(fs::read_dir(directory))?.into_iter().flatten())
}

/// The result of a call with a path; `None` if there is no such file.
pub fn if_exists<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_is_replaced_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.json");
        for durability in [Durability::Durable, Durability::Volatile] {
            replace(&path, b"new", Access::Private, durability).unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"new");
            let mode = fs::metadata(&path).unwrap().mode() & 0o7777;
            assert_eq!(mode, 0o600);
            fs::write(&path, b"something longer").unwrap();
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn mode_and_owner_can_be_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.json");
        fs::write(&path, b"old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        replace(&path, b"new", Access::AsBefore, Durability::Volatile).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o644);
    }

    #[test]
    fn what_is_in_the_way_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other) = (directory.path().join("a"), directory.path().join("other"));
        fs::write(&other, b"kept").unwrap();
        symlink(&other, &path).unwrap();
        symlink(&other, staged(&path).unwrap()).unwrap();
        replace(&path, b"new", Access::Private, Durability::Durable).unwrap();
        assert_eq!(fs::read(&other).unwrap(), b"kept");
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
    }

    #[test]
    fn a_failure_leaves_the_old_file_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        fs::create_dir(&path).unwrap();
        replace(&path, b"new", Access::Private, Durability::Durable).unwrap_err();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_beyond_its_limit_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        fs::write(&path, b"12345").unwrap();
        assert_eq!(read(&path, 5).unwrap().unwrap(), b"12345");
        let refused = |path: &Path, limit| {
            let error = read(path, limit).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            error.to_string()
        };
        assert_eq!(refused(&path, 4), "it is larger than 4 bytes");
        // A file without a size of its own is refused at the limit, too.
        let endless = File::open("/dev/zero").unwrap();
        assert!(read_limited(&endless, 4).is_err());
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(refused(&path, 4096), "it is larger than 4096 bytes");
    }

    #[test]
    fn only_regular_files_are_opened() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("file"), b"").unwrap();
        symlink(path("file"), path("link")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            path("fifo"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        assert!(open(&path("file")).unwrap().is_some());
        assert!(open(&path("none")).unwrap().is_none());
        for other in [path("link"), path("fifo"), directory.path().to_owned()] {
            let error = open(&other).unwrap_err();
            assert_eq!(error.to_string(), "it is not a regular file", "{other:?}");
        }
    }
}
