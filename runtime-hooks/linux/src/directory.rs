//! Our directories at well-known paths: created, or checked if they exist.
//!
//! A user who can write into a directory decides where root's files go: by a link, or by another
//! file of the name. On some distributions users other than root can write above `/var/log/stasis`
//! (Ubuntu's `/var/log` belongs to the group that logs), and create it before us.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use rustix::fs::{Mode, OFlags, open, openat, renameat};
use rustix::process::geteuid;

use crate::file::not_a_file;

const WRITABLE_BY_OTHERS: u32 = 0o022;

/// A directory that no other user can write into, held open.
#[derive(Debug)]
pub struct Directory {
    file: File,
}

/// Treatment of an existing log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Earlier {
    /// Appended to. One write is one line: lines of several writers do not mix.
    Continued,
    /// Emptied.
    Replaced,
}

impl Directory {
    /// Creates a directory with this mode, and its missing parents, or opens the existing one.
    ///
    /// # Errors
    /// An I/O error, or [`io::ErrorKind::PermissionDenied`] for anything but a directory of ours
    /// that no other user can write into. Links are followed above the directory alone.
    pub fn make(path: &Path, mode: u32) -> io::Result<Self> {
        let made = DirBuilder::new().recursive(true).mode(mode).create(path);
        match made {
            // The next call says what it is.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = open(path, flags, Mode::empty()).map_err(io::Error::from);
        let file = match opened {
            // A link to a directory counts as none (open(2), O_NOFOLLOW with O_DIRECTORY).
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(not_ours("it is a link, or no directory"));
            }
            opened => File::from(opened?),
        };
        let found = file.metadata()?;
        let mode = found.mode() & 0o7777;
        if found.uid() != geteuid().as_raw() || mode & WRITABLE_BY_OTHERS != 0 {
            let uid = found.uid();
            let what = format!("it belongs to uid {uid} and has mode {mode:04o}");
            return Err(not_ours(&what));
        }
        Ok(Self { file })
    }

    /// Returns the open directory, for example to lock it.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the open directory, to be kept.
    #[must_use]
    pub fn into_file(self) -> File {
        self.file
    }

    /// Opens a log in the directory for writing, or creates it with mode 0600. Also for reading:
    /// otherwise NFS gives no shared lock on it (flock(2), "NFS details").
    ///
    /// # Errors
    /// An I/O error; [`io::ErrorKind::InvalidData`] for anything but a regular file of ours.
    pub fn log(&self, name: &str, earlier: Earlier) -> io::Result<File> {
        let flags = match earlier {
            Earlier::Continued => OFlags::APPEND,
            Earlier::Replaced => OFlags::empty(),
        };
        // Without NONBLOCK a fifo is waited for.
        let flags = flags
            | OFlags::RDWR
            | OFlags::CREATE
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::CLOEXEC;
        let log = File::from(openat(&self.file, name, flags, Mode::RUSR | Mode::WUSR)?);
        let found = log.metadata()?;
        if !found.is_file() || found.uid() != geteuid().as_raw() {
            return Err(not_a_file());
        }
        if earlier == Earlier::Replaced {
            log.set_len(0)?;
        }
        Ok(log)
    }

    /// Renames a file in the directory; replaces a file of the new name.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(&self.file, from, &self.file, to)?)
    }
}

fn not_ours(what: &str) -> io::Error {
    let text = format!("{what}: others could write where we do; move it away, or name another");
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    fn fifo(path: &Path) {
        mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    }

    #[test]
    fn a_directory_is_made_for_us_alone() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("a/b");
        for _ in 0..2 {
            Directory::make(&path, 0o700).unwrap();
            assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o700);
        }
        // As an administrator may have made it.
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        Directory::make(&path, 0o700).unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o755);
    }

    #[test]
    fn what_others_may_write_into_is_refused() {
        type Make = fn(&Path);
        let cases: [(&str, Make); 6] = [
            ("uid 1000", |path| {
                fs::create_dir(path).unwrap();
                chown(path, Some(1000), None).unwrap();
            }),
            ("mode 0775", |path| {
                fs::create_dir(path).unwrap();
                fs::set_permissions(path, Permissions::from_mode(0o775)).unwrap();
            }),
            ("mode 1777", |path| {
                fs::create_dir(path).unwrap();
                fs::set_permissions(path, Permissions::from_mode(0o1777)).unwrap();
            }),
            ("a link", |path| symlink("/root", path).unwrap()),
            ("no directory", |path| fs::write(path, "").unwrap()),
            ("no directory", fifo),
        ];
        for (says, make) in cases {
            let above = tempfile::tempdir().unwrap();
            let path = above.path().join("stasis");
            make(&path);
            let error = Directory::make(&path, 0o700).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{says}");
            assert!(error.to_string().contains(says), "{says}: {error}");
        }
    }

    #[test]
    fn a_log_is_continued_or_replaced() {
        let path = tempfile::tempdir().unwrap();
        let directory = Directory::make(path.path(), 0o700).unwrap();
        for (earlier, contents) in [
            (Earlier::Continued, "1"),
            (Earlier::Continued, "11"),
            (Earlier::Replaced, "1"),
        ] {
            let mut log = directory.log("a.log", earlier).unwrap();
            log.write_all(b"1").unwrap();
            let log = path.path().join("a.log");
            assert_eq!(fs::read_to_string(&log).unwrap(), contents);
            assert_eq!(log.metadata().unwrap().mode() & 0o7777, 0o600);
        }
        directory.rename("a.log", "b.log").unwrap();
        assert!(path.path().join("b.log").exists());
    }

    #[test]
    fn nothing_but_a_file_of_ours_is_a_log() {
        let path = tempfile::tempdir().unwrap();
        let directory = Directory::make(path.path(), 0o700).unwrap();
        let at = |name: &str| path.path().join(name);
        fs::write(at("theirs"), "kept").unwrap();
        chown(at("theirs"), Some(1000), None).unwrap();
        fs::write(at("target"), "kept").unwrap();
        symlink("target", at("link")).unwrap();
        symlink("new", at("dangling")).unwrap();
        fs::create_dir(at("directory")).unwrap();
        fifo(&at("fifo"));
        for name in ["theirs", "link", "dangling", "directory", "fifo"] {
            for earlier in [Earlier::Continued, Earlier::Replaced] {
                assert!(directory.log(name, earlier).is_err(), "{name}");
            }
        }
        assert_eq!(fs::read(at("theirs")).unwrap(), b"kept");
        assert_eq!(fs::read(at("target")).unwrap(), b"kept");
        assert!(!at("new").exists());
    }
}
