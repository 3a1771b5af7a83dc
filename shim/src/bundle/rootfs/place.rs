//! Where a mount goes: the root file system's directory, or a path in what is mounted there.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};

use crate::io_error::IoError;

/// A mount point that may not be mounted yet.
#[derive(Debug)]
pub(super) struct Place {
    root: PathBuf,
    inside: PathBuf,
}

/// A mount point that was found.
#[derive(Debug)]
pub(super) struct Found {
    path: PathBuf,
    held: Option<OwnedFd>,
}

impl Place {
    /// The place of `target` in `root`; the root itself if it is empty.
    pub(super) fn new(root: &Path, target: &str) -> Self {
        Self {
            root: root.to_owned(),
            inside: target.trim_start_matches('/').into(),
        }
    }

    /// Finds it. Whoever made the image has made its links: they lead nowhere outside of the root.
    ///
    /// Anew for each call: what is found is what lies below a mount made since.
    pub(super) fn find(&self) -> Result<Found, IoError> {
        if self.inside.as_os_str().is_empty() {
            return Ok(Found {
                path: self.root.clone(),
                held: None,
            });
        }
        let find = || {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let root = open(&self.root, flags | OFlags::DIRECTORY, Mode::empty())?;
            let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
            openat2(root, &self.inside, flags, Mode::empty(), resolve)
        };
        let found = find().map_err(IoError::cannot(format!(
            "find {} in the root file system",
            self.inside.display()
        )))?;
        Ok(Found {
            path: format!("/proc/self/fd/{}", found.as_raw_fd()).into(),
            held: Some(found),
        })
    }
}

impl Found {
    /// A path that this process finds it by.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A path that others find it by.
    pub(super) fn path_for_others(&self) -> Result<PathBuf, IoError> {
        let Some(held) = &self.held else {
            return Ok(self.path.clone());
        };
        let link = format!("/proc/self/fd/{}", held.as_raw_fd());
        std::fs::read_link(link).map_err(IoError::cannot("name the mount point"))
    }
}
