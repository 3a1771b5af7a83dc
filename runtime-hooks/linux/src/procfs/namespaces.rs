//! The namespaces of a process (namespaces(7)).

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use super::gone_is_none;
use crate::ProcessRef;

/// A namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespace {
    device: u64,
    inode: u64,
}

/// The namespace of this kind that a process is in; `None` if it has ended, or the kernel has no
/// such kind.
pub fn namespace_of(pid: i32, kind: &str) -> io::Result<Option<Namespace>> {
    gone_is_none(identity(&pid.to_string(), kind))
}

/// Whether a process is in another namespace of this kind ("user", "net", "pid": the names below
/// `/proc/PID/ns`) than we are; `None` if it has ended.
pub fn has_another_namespace(process: &ProcessRef, kind: &str) -> io::Result<Option<bool>> {
    let own = identity("self", kind)?;
    let Some(theirs) = gone_is_none(identity(&process.pid().to_string(), kind))? else {
        return Ok(None);
    };
    // Asked last: the pid was its own.
    Ok((!process.is_gone()).then_some(theirs != own))
}

/// Device and inode, by which namespaces are told apart.
fn identity(pid: &str, kind: &str) -> io::Result<Namespace> {
    let namespace = fs::metadata(format!("/proc/{pid}/ns/{kind}"))?;
    Ok(Namespace {
        device: namespace.dev(),
        inode: namespace.ino(),
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_namespace_is_anothers_as_long_as_its_process_is_there() {
        let mut child = Command::new("unshare")
            .args(["--user", "sh", "-c", "echo; exec sleep 60"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0];
        io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let process = ProcessRef::open(pid).unwrap().unwrap();
        let has_another = |kind| has_another_namespace(&process, kind).unwrap();
        assert_eq!(has_another("user"), Some(true));
        assert_eq!(has_another("net"), Some(false));
        let own = i32::try_from(std::process::id()).unwrap();
        let is_ours = |kind| namespace_of(pid, kind).unwrap() == namespace_of(own, kind).unwrap();
        assert!(!is_ours("user") && is_ours("net"));
        assert_eq!(namespace_of(pid, "none").unwrap(), None);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(has_another("user"), None);
    }
}
