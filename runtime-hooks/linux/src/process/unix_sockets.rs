//! The unix sockets of a network namespace, and which of them are connected (sock_diag(7)).

use std::collections::HashMap;
use std::io;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

/// `SOCK_DIAG_BY_FAMILY` (linux/sock_diag.h).
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST | NLM_F_DUMP` (linux/netlink.h).
const ALL: u16 = 1 | 0x300;
/// `AF_UNIX`, as a byte.
const UNIX: u8 = 1;
/// `UDIAG_SHOW_NAME | UDIAG_SHOW_PEER` (linux/unix_diag.h).
const SHOWN: u32 = 1 | 4;
/// `NLMSG_DONE` and `NLMSG_ERROR`, which end an answer.
const ENDS: [u16; 2] = [3, 2];
/// `UNIX_DIAG_NAME` and `UNIX_DIAG_PEER`.
const NAME: u16 = 0;
const PEER: u16 = 2;
/// Of a message, of what comes first in it, and of an attribute, each a multiple of four.
const HEADER: usize = 16;
const SOCKET: usize = 16;
const ATTRIBUTE: usize = 4;
/// The kernel fills 32 KiB at once at most.
const ROOM: usize = 64 << 10;
/// Of a machine that is busy; what is beyond is not looked at.
const MOST: usize = 1 << 20;

/// A unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnixSocket {
    /// Whether what is sent are packets, that need no connection.
    pub is_datagram: bool,
    /// Whether it has a name.
    pub is_named: bool,
    /// The inode of the socket that it is connected with; `None` without one.
    pub peer: Option<u64>,
}

/// All unix sockets of this thread's network namespace, by their inodes.
///
/// # Errors
/// An I/O error; ENOENT of a kernel that does not tell.
pub fn unix_sockets() -> io::Result<HashMap<u64, UnixSocket>> {
    let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
    let protocol = Some(netlink::SOCK_DIAG);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, protocol)?;
    send(&socket, &request(), SendFlags::empty())?;
    let mut found = HashMap::new();
    let mut room = vec![0; ROOM];
    loop {
        let (length, _) = recv(&socket, &mut room[..], RecvFlags::empty())?;
        if length == 0 || !read(&room[..length], &mut found)? || found.len() > MOST {
            return Ok(found);
        }
    }
}

/// `struct nlmsghdr` and `struct unix_diag_req`.
fn request() -> Vec<u8> {
    let mut request = Vec::new();
    request.extend(40_u32.to_ne_bytes());
    request.extend(BY_FAMILY.to_ne_bytes());
    request.extend(ALL.to_ne_bytes());
    request.extend([0; 8]);
    request.extend([UNIX, 0, 0, 0]);
    // In every state.
    request.extend(u32::MAX.to_ne_bytes());
    request.extend([0; 4]);
    request.extend(SHOWN.to_ne_bytes());
    request.extend([0; 8]);
    request
}

/// Reads messages; whether more are to come.
fn read(mut messages: &[u8], found: &mut HashMap<u64, UnixSocket>) -> io::Result<bool> {
    while let Some((length, kind)) = u32_at(messages, 0).zip(u16_at(messages, 4)) {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let Some(message) = messages.get(HEADER..length) else {
            break;
        };
        if ENDS.contains(&kind) {
            let error = u32_at(message, 0).unwrap_or_default().cast_signed();
            return match error {
                0.. => Ok(false),
                error => Err(io::Error::from_raw_os_error(-error)),
            };
        }
        found.extend(socket_of(message));
        messages = messages.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    Ok(true)
}

/// `struct unix_diag_msg` and its attributes.
fn socket_of(message: &[u8]) -> Option<(u64, UnixSocket)> {
    let inode = u64::from(u32_at(message, 4)?);
    let mut socket = UnixSocket {
        is_datagram: u32::from(*message.get(1)?) == SocketType::DGRAM.as_raw(),
        is_named: false,
        peer: None,
    };
    let mut attributes = message.get(SOCKET..)?;
    while let Some((length, kind)) = u16_at(attributes, 0).zip(u16_at(attributes, 2)) {
        let length = usize::from(length);
        let Some(value) = attributes.get(ATTRIBUTE..length) else {
            break;
        };
        match kind {
            NAME => socket.is_named = !value.is_empty(),
            PEER => socket.peer = u32_at(value, 0).map(u64::from).filter(|peer| *peer != 0),
            _ => {}
        }
        let next = length.next_multiple_of(4);
        attributes = attributes.get(next..).unwrap_or(&[]);
    }
    Some((inode, socket))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

    use rustix::fs::fstat;

    use super::*;

    #[test]
    fn both_ends_of_a_connection_know_each_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let server = UnixListener::bind(&path).unwrap();
        let client = UnixStream::connect(&path).unwrap();
        let before = unix_sockets().unwrap();
        let (accepted, _) = server.accept().unwrap();
        let packets = UnixDatagram::unbound().unwrap();
        let all = unix_sockets().unwrap();
        let inode = |socket: &dyn std::os::fd::AsFd| fstat(socket.as_fd()).unwrap().st_ino;
        let of = |socket: &dyn std::os::fd::AsFd| all[&inode(socket)];
        assert_eq!(before[&inode(&client)].peer, None, "nobody has accepted it");
        assert_eq!(of(&client).peer, Some(inode(&accepted)));
        assert_eq!(of(&accepted).peer, Some(inode(&client)));
        assert!(of(&server).is_named && !of(&client).is_named && !of(&client).is_datagram);
        let alone = of(&packets);
        assert!(alone.is_datagram && !alone.is_named && alone.peer.is_none());
    }

    #[test]
    fn an_answer_that_is_cut_off_is_read_up_to_there() {
        let mut message = Vec::new();
        message.extend(40_u32.to_ne_bytes());
        message.extend(BY_FAMILY.to_ne_bytes());
        message.extend([0; 10]);
        message.extend([1, 1, 1, 0, 7, 0, 0, 0]);
        message.extend([0; 8]);
        message.extend([8, 0, 2, 0, 9, 0, 0, 0]);
        for length in 0..=message.len() {
            let mut found = HashMap::new();
            assert!(read(&message[..length], &mut found).unwrap());
            assert_eq!(found.contains_key(&7), length == message.len());
        }
        let ended = [20, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert!(!read(&ended, &mut HashMap::new()).unwrap());
        let mut failed = ended;
        failed[4] = 2;
        failed[16..].copy_from_slice(&(-2_i32).to_ne_bytes());
        let error = read(&failed, &mut HashMap::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
