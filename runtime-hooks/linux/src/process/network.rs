//! The network namespace of a process.

use std::fs::{self, File};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::thread;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The network namespace of a process; `None` if that is our own.
///
/// # Errors
/// An I/O error; also of a process that has ended.
pub fn network_of(pid: i32) -> io::Result<Option<File>> {
    let identity = |namespace: fs::Metadata| (namespace.dev(), namespace.ino());
    let namespace = File::open(format!("/proc/{pid}/ns/net"))?;
    let own = identity(fs::metadata("/proc/self/ns/net")?);
    let is_own = identity(namespace.metadata()?) == own;
    Ok((!is_own).then_some(namespace))
}

/// Does `work` in a network namespace, with all that it starts.
///
/// # Errors
/// An I/O error of entering it; or that of `work`.
pub fn in_network<T: Send>(
    namespace: BorrowedFd<'_>,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    in_namespace(namespace, LinkNameSpaceType::Network, work)
}

/// Does `work` in a namespace.
pub(super) fn in_namespace<T: Send>(
    namespace: BorrowedFd<'_>,
    kind: LinkNameSpaceType,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    // A thread has a namespace of its own (setns(2)), and this one ends with it.
    let work = || {
        move_into_link_name_space(namespace, Some(kind))?;
        work()
    };
    thread::scope(|scope| {
        let work = thread::Builder::new().spawn_scoped(scope, work)?;
        work.join()
            .unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    })
}

/// `RTM_NEWLINK` (linux/rtnetlink.h).
const CHANGE_LINK: u16 = 16;
/// `NLM_F_REQUEST | NLM_F_ACK` (linux/netlink.h).
const ANSWERED: u16 = 1 | 4;
/// The number of the loopback device in every network (`LOOPBACK_IFINDEX`).
const LOOPBACK: u32 = 1;
/// `IFF_UP`.
const UP: u32 = 1;

/// Brings the loopback device of this thread's network up.
pub fn bring_loopback_up() -> io::Result<()> {
    let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
    // Of the protocol 0, `NETLINK_ROUTE`.
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    let [kind, flags] = [CHANGE_LINK, ANSWERED].map(u16::to_ne_bytes);
    // The header has a number and a port as well; then come the family, the device, and its flags
    // with those that change (`struct nlmsghdr`, `struct ifinfomsg`).
    let words =
        |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|it| it.to_ne_bytes()).collect() };
    let rest = words(&[0, 0, 0, LOOPBACK, UP, UP]);
    let request = [&words(&[32])[..], &kind, &flags, &rest].concat();
    send(&socket, &request, SendFlags::empty())?;
    let mut answer = [0; 256];
    let (length, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    // Behind the header of the answer is the error.
    let error = answer[..length]
        .get(16..)
        .and_then(|rest| rest.first_chunk());
    match error.map(|error| i32::from_ne_bytes(*error)) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::read_link;
    use std::net::UdpSocket;
    use std::process::{Child, Command};

    use std::os::fd::AsFd;

    use super::*;

    fn in_another_network() -> Child {
        let theirs = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo; exec sleep 60"])
            .stdout(std::process::Stdio::piped())
            .spawn();
        let mut theirs = theirs.unwrap();
        let mut line = [0];
        io::Read::read_exact(theirs.stdout.as_mut().unwrap(), &mut line).unwrap();
        theirs
    }

    #[test]
    fn a_new_network_reaches_itself_once_its_loopback_is_up() {
        let mut theirs = in_another_network();
        let pid = i32::try_from(theirs.id()).unwrap();
        let namespace = network_of(pid).unwrap().unwrap();
        let reached = in_network(namespace.as_fd(), || {
            let sent = || UdpSocket::bind("0.0.0.0:0")?.send_to(b"x", "127.0.0.1:9");
            sent().unwrap_err();
            bring_loopback_up()?;
            bring_loopback_up()?;
            sent()
        });
        assert_eq!(reached.unwrap(), 1);
        theirs.kill().unwrap();
        theirs.wait().unwrap();
    }

    #[test]
    fn what_is_started_there_is_there_and_we_are_not() {
        let mut theirs = in_another_network();
        let path = format!("/proc/{}/ns/net", theirs.id());
        let own = read_link("/proc/self/ns/net").unwrap();
        let network = |pid: u32| network_of(i32::try_from(pid).unwrap()).unwrap();
        assert!(network(std::process::id()).is_none());
        let namespace = network(theirs.id()).unwrap();
        let started = in_network(namespace.as_fd(), || {
            Command::new("readlink").arg("/proc/self/ns/net").output()
        });
        let started = String::from_utf8(started.unwrap().stdout).unwrap();
        assert_eq!(started.trim(), read_link(&path).unwrap().to_str().unwrap());
        assert_eq!(read_link("/proc/self/ns/net").unwrap(), own);
        theirs.kill().unwrap();
        theirs.wait().unwrap();
    }
}
