//! A detached mount, through which other processes get files.
//!
//! The inode decides who may write to a file, and root always may. A process with a descriptor can
//! reopen the file through `/proc` with other rights, whatever the descriptor was opened for, but
//! only by the mount that the file was first opened through. So that mount alone can refuse.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{OpenTreeFlags, open_tree};

use super::mount_attributes::make_read_only;

/// A second mount of a directory. The kernel drops it with the last file that was opened through
/// it; it can be changed as long as this value, or another descriptor of it, lives.
#[derive(Debug)]
pub struct DetachedMount {
    root: OwnedFd,
}

impl DetachedMount {
    /// Mounts a directory a second time. The new mount is as writable as the directory's.
    ///
    /// # Errors
    /// Errors of open_tree(2): EPERM without CAP_SYS_ADMIN.
    pub fn of(directory: &Path) -> io::Result<Self> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let root = open_tree(CWD, directory, flags)?;
        Ok(Self { root })
    }

    /// Mounts a directory a second time, read-only.
    ///
    /// # Errors
    /// As [`Self::of`], and errors of mount_setattr(2).
    pub fn read_only(directory: &Path) -> io::Result<Self> {
        let mount = Self::of(directory)?;
        mount.make_read_only()?;
        Ok(mount)
    }

    /// Makes the mount read-only: no process writes through it any more, or opens a file for that.
    ///
    /// # Errors
    /// Errors of mount_setattr(2); EBUSY ([`io::ErrorKind::ResourceBusy`]): a process has a file
    /// open for writing through it, or a mapping that was made by such a process.
    pub fn make_read_only(&self) -> io::Result<()> {
        make_read_only(self.root.as_fd())
    }

    /// Opens a file of the directory for reading.
    pub fn open(&self, name: &OsStr) -> io::Result<File> {
        self.open_with(name, OFlags::RDONLY)
    }

    /// Opens a file of the directory for reading and writing.
    ///
    /// # Errors
    /// Errors of openat(2); EROFS once the mount is read-only.
    pub fn open_to_write(&self, name: &OsStr) -> io::Result<File> {
        self.open_with(name, OFlags::RDWR)
    }

    fn open_with(&self, name: &OsStr, access: OFlags) -> io::Result<File> {
        let flags = access | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.root, name, flags, Mode::empty())?.into())
    }
}

impl AsFd for DetachedMount {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }
}

impl From<OwnedFd> for DetachedMount {
    /// Takes another process's descriptor of a detached mount.
    fn from(root: OwnedFd) -> Self {
        Self { root }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::num::NonZeroUsize;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

    use nix::libc::O_PATH;
    use rustix::io::Errno;
    use tempfile::TempDir;

    use super::*;
    use crate::memory_file::Clearing;

    const NAME: &str = "file";
    const PAGE: usize = 4096;

    /// Creates a file on a tmpfs, where mapped packs are, too.
    fn with_file() -> TempDir {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        fs::write(directory.path().join(NAME), [1; PAGE]).unwrap();
        directory
    }

    /// Opens a file anew, as a process with a descriptor of it does.
    fn anew(file: &File, options: &OpenOptions) -> io::Result<File> {
        options.open(format!("/proc/self/fd/{}", file.as_raw_fd()))
    }

    fn is_read_only(result: io::Result<File>) -> bool {
        result.is_err_and(|error| error.raw_os_error() == Some(Errno::ROFS.raw_os_error()))
    }

    #[test]
    fn what_is_opened_through_one_is_never_opened_for_writing() {
        let directory = with_file();
        let file = DetachedMount::read_only(directory.path())
            .unwrap()
            .open(NAME.as_ref())
            .unwrap();
        let mut writing = OpenOptions::new();
        writing.read(true).write(true);
        assert!(is_read_only(anew(&file, &writing)));
        let place = anew(&file, OpenOptions::new().read(true).custom_flags(O_PATH)).unwrap();
        assert!(is_read_only(anew(&place, &writing)));
        assert!(is_read_only(anew(&file, OpenOptions::new().append(true))));
        // The same file, which others may write to.
        let own = directory.path().join(NAME);
        let metadata = fs::metadata(&own).unwrap();
        let found = file.metadata().unwrap();
        assert_eq!((found.dev(), found.ino()), (metadata.dev(), metadata.ino()));
        fs::write(&own, b"changed").unwrap();
        let mut read = [0; 7];
        anew(&file, OpenOptions::new().read(true))
            .unwrap()
            .read_exact_at(&mut read, 0)
            .unwrap();
        assert_eq!(&read, b"changed");
    }

    #[test]
    fn one_that_somebody_writes_through_cannot_be_made_so() {
        let directory = with_file();
        let mount = DetachedMount::of(directory.path()).unwrap();
        let is_busy = || {
            let made = mount.make_read_only();
            made.is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy)
        };
        let file = mount.open_to_write(NAME.as_ref()).unwrap();
        let reading = mount.open(NAME.as_ref()).unwrap();
        assert!(is_busy());
        let mapped = Clearing::start(&file, PAGE as u64, NonZeroUsize::MIN).unwrap();
        drop(file);
        assert!(is_busy(), "a mapping is left");
        drop(mapped);
        mount.make_read_only().unwrap();
        assert!(is_read_only(mount.open_to_write(NAME.as_ref())));
        // Also through what was opened before.
        assert!(is_read_only(anew(&reading, OpenOptions::new().write(true))));
    }

    #[test]
    fn it_is_mounted_nowhere() {
        let directory = with_file();
        let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap();
        let before = mounts();
        let mount = DetachedMount::of(directory.path()).unwrap();
        let file = mount.open(NAME.as_ref()).unwrap();
        assert_eq!(mounts(), before);
        drop(mount);
        // `/proc/PID/maps` shows the file's name alone.
        let link = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        assert_eq!(link, Path::new("/").join(NAME));
        fs::remove_file(directory.path().join(NAME)).unwrap();
        fs::remove_dir(directory.path()).unwrap();
    }
}
