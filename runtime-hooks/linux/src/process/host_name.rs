//! The host name of a container.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use rustix::system::sethostname;
use rustix::thread::LinkNameSpaceType;

use super::network::in_namespace;

/// Sets the host name in the UTS namespace of a process, unless that is our own.
///
/// # Errors
/// An I/O error; also of a process that has ended.
pub fn set_host_name(pid: i32, name: &str) -> io::Result<()> {
    let namespace = File::open(format!("/proc/{pid}/ns/uts"))?;
    if namespace.metadata()?.ino() == fs::metadata("/proc/self/ns/uts")?.ino() {
        return Ok(());
    }
    let kind = LinkNameSpaceType::HostNameAndNISDomainName;
    in_namespace(namespace.as_fd(), kind, || {
        Ok(sethostname(name.as_bytes())?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_machine_is_left_alone() {
        let own = i32::try_from(std::process::id()).unwrap();
        let name = || fs::read("/proc/sys/kernel/hostname").unwrap();
        let before = name();
        set_host_name(own, "another").unwrap();
        assert_eq!(name(), before);
        assert!(set_host_name(i32::MAX, "another").is_err());
    }
}
