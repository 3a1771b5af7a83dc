//! The pipes between the shim and a process or a logger.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{Gid, Uid, fchown};

use crate::error::{Error, Result};

/// The process or the container that streams belong to, and the owner of their pipes.
#[derive(Debug)]
pub(crate) struct Owner<'a> {
    /// The id that loggers get: the container's, or that of the process that Exec added.
    pub(crate) id: &'a str,
    /// containerd's namespace, which loggers get.
    pub(crate) namespace: &'a str,
    /// The owner of the pipes, so that an unprivileged program can reopen them.
    pub(crate) uid: u32,
    /// The group of the pipes.
    pub(crate) gid: u32,
}

/// The end of a pipe that the other process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Reader,
    Writer,
}

/// A pipe: the other process's end and the shim's.
pub(super) fn owned_pipe(owner: &Owner<'_>, theirs: End) -> Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = io::pipe().map_err(Error::cannot("make a pipe"))?;
    let (reader, writer) = (OwnedFd::from(reader), OwnedFd::from(writer));
    let (theirs, ours) = match theirs {
        End::Reader => (reader, writer),
        End::Writer => (writer, reader),
    };
    if owner.uid != 0 || owner.gid != 0 {
        let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
        fchown(&theirs, Some(uid), Some(gid)).map_err(Error::cannot(
            "change the owner of a pipe to io_uid and io_gid",
        ))?;
    }
    Ok((theirs, ours))
}
