//! The network namespace of a process.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::thread;

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
    // A thread has a namespace of its own (setns(2)), and this one ends with it.
    let work = || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        work()
    };
    thread::scope(|scope| {
        let work = thread::Builder::new().spawn_scoped(scope, work)?;
        work.join()
            .unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    })
}

#[cfg(test)]
mod tests {
    use std::fs::read_link;
    use std::process::Command;

    use super::*;

    #[test]
    fn what_is_started_there_is_there_and_we_are_not() {
        let theirs = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo; exec sleep 60"])
            .stdout(std::process::Stdio::piped())
            .spawn();
        let mut theirs = theirs.unwrap();
        let mut line = [0];
        io::Read::read_exact(theirs.stdout.as_mut().unwrap(), &mut line).unwrap();
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
