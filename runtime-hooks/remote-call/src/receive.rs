//! Gives a file of ours to a proxy, but no descriptor of it to the proxy's owner.
//!
//! A proxy with a table of descriptors of its own makes two sockets. We take them (pidfd_getfd(2)),
//! connect them, and send the file through one of them (SCM_RIGHTS in unix(7)); the proxy receives
//! it from the other.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use nix::libc;
use rustix::cmsg_space;
use rustix::net::{
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, bind, connect,
    getsockname, sendmsg,
};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::memory;
use crate::proxy::Proxy;

/// The bytes of its memory that a proxy needs for receiving.
pub const SCRATCH_BYTES: u64 = WORDS as u64 * 8;
const WORDS: usize = 13;

/// The parts of the scratch memory, in words: a `struct iovec`, its byte, a message with one
/// descriptor (`struct cmsghdr`), and a `struct msghdr`.
const BYTE: u64 = 2;
const CONTROL: u64 = 3;
const HEADER: u64 = 6;
/// A `struct cmsghdr` and one descriptor, and the same with padding.
const CONTROL_LEN: u64 = 20;
const CONTROL_SPACE: u64 = 24;

impl Proxy {
    /// Receives a file. Returns its descriptor, which only the proxy has if it shares memory alone
    /// with its owner. `scratch` is the address of [`SCRATCH_BYTES`] for this call alone.
    ///
    /// # Errors
    /// Errors of the calls; a security module may forbid the container the file (EACCES).
    pub fn receive(&mut self, file: BorrowedFd<'_>, scratch: u64) -> io::Result<u64> {
        let (sender, receiver) = (self.socket()?, self.socket()?);
        let (ours, theirs) = (self.take(sender)?, self.take(receiver)?);
        connect_both(&ours, &theirs)?;
        send(&ours, file)?;
        let message = message(scratch).map(u64::to_ne_bytes);
        memory::write(self.pid(), scratch, message.as_flattened())?;
        let flags = (libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT)
            .unsigned_abs()
            .into();
        self.call(libc::SYS_recvmsg, &[receiver, scratch + HEADER * 8, flags])?;
        self.received(scratch + CONTROL * 8)
    }

    /// Makes a socket of the proxy, and returns its number: from a register, and not from memory,
    /// which other threads of the owner can change.
    fn socket(&mut self) -> io::Result<u64> {
        let kind = (libc::SOCK_DGRAM | libc::SOCK_CLOEXEC)
            .unsigned_abs()
            .into();
        let local = libc::AF_UNIX.unsigned_abs().into();
        self.call(libc::SYS_socket, &[local, kind, 0])
    }

    /// Duplicates a descriptor of the proxy into this process.
    fn take(&self, descriptor: u64) -> io::Result<OwnedFd> {
        let descriptor = i32::try_from(descriptor).map_err(io::Error::other)?;
        let pid = Pid::from_raw(self.pid()).ok_or(io::ErrorKind::NotFound)?;
        let proxy = pidfd_open(pid, PidfdFlags::empty())?;
        Ok(pidfd_getfd(proxy, descriptor, PidfdGetfdFlags::empty())?)
    }

    /// Reads the descriptor in a `struct cmsghdr`.
    fn received(&self, control: u64) -> io::Result<u64> {
        let kind: u64 = libc::SOL_SOCKET.unsigned_abs().into();
        let rights: u64 = libc::SCM_RIGHTS.unsigned_abs().into();
        let expected = [CONTROL_LEN, kind | rights << 32];
        let words = [0, 8, 16].map(|offset| memory::word(self.pid(), control + offset));
        let [len, kind, descriptor] = words;
        if [len?, kind?] != expected {
            return Err(io::Error::other("it received no descriptor"));
        }
        Ok(descriptor? & u64::from(u32::MAX))
    }
}

/// Connects two sockets, so that each receives only from the other: any process in the container's
/// network namespace can send to a name there.
fn connect_both(one: &OwnedFd, other: &OwnedFd) -> io::Result<()> {
    let no_name = SocketAddrUnix::new_unnamed();
    for socket in [one, other] {
        // The kernel chooses a name: unix(7), "Autobind feature".
        bind(socket, &no_name)?;
    }
    for (from, to) in [(one, other), (other, one)] {
        connect(from, &getsockname(to)?)?;
    }
    Ok(())
}

fn send(socket: &OwnedFd, file: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [file];
    control.push(SendAncillaryMessage::ScmRights(&files));
    sendmsg(
        socket,
        &[IoSlice::new(&[0])],
        &mut control,
        SendFlags::DONTWAIT,
    )?;
    Ok(())
}

/// Returns the arguments of recvmsg(2), for little-endian machines of 64 bits.
fn message(scratch: u64) -> [u64; WORDS] {
    let at = |word: u64| scratch + word * 8;
    let mut words = [0; WORDS];
    words[0] = at(BYTE);
    words[1] = 1;
    // msg_name and msg_namelen are 0.
    words[8] = at(0);
    words[9] = 1;
    words[10] = at(CONTROL);
    words[11] = CONTROL_SPACE;
    words
}
