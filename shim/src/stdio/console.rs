//! The socket over which a runtime sends the master side of a terminal.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tempfile::TempDir;
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};

use crate::error::{Error, Result};

/// A socket that waits for a terminal.
#[derive(Debug)]
pub(super) struct ConsoleSocket {
    listener: UnixListener,
    path: PathBuf,
    _directory: TempDir,
}

impl ConsoleSocket {
    /// Makes one. Not in the bundle: with a long id the path would be too long for a socket address
    /// (unix(7): 108 bytes).
    pub(super) fn open() -> Result<Self> {
        let open = || {
            let directory = tempfile::Builder::new().prefix("pty").tempdir()?;
            let path = directory.path().join("pty.sock");
            Ok(Self {
                listener: UnixListener::bind(&path)?,
                path,
                _directory: directory,
            })
        };
        open().map_err(Error::cannot::<io::Error>("make a console socket"))
    }

    /// The socket's path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until the runtime has sent the terminal.
    pub(super) async fn receive(self) -> Result<File> {
        let receive = async {
            let (stream, _) = self.listener.accept().await?;
            loop {
                stream.readable().await?;
                match stream.try_io(Interest::READABLE, || descriptor(&stream)) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    received => return received,
                }
            }
        };
        let received: io::Result<OwnedFd> = receive.await;
        received
            .map(File::from)
            .map_err(Error::cannot("receive the terminal"))
    }
}

fn descriptor(stream: &UnixStream) -> io::Result<OwnedFd> {
    // The message's data is the terminal's name.
    let mut name = [0_u8; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut data = [IoSliceMut::new(&mut name)];
    recvmsg(stream, &mut data, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    descriptors
        .next()
        .ok_or_else(|| io::Error::other("the runtime sent a message without a terminal"))
}
