use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::*;

/// Starts `cat` or a copy of it. posix_spawn(3) returns before execve(2) has set the name and has
/// mapped the program; one that answers has both.
pub(crate) fn start(mut command: Command) -> Child {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(b"?").unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    child
}

/// Copies `cat`, in a process of its own: a descriptor of ours that can write to the copy would be
/// a moment in what other tests start, and execve(2) refuse it (ETXTBSY).
pub(crate) fn copy_cat(to: &Path) {
    let copied = Command::new("cp").arg("/bin/cat").arg(to).status();
    assert!(copied.unwrap().success());
}

fn open(child: &Child) -> Option<ProcessRef> {
    ProcessRef::open(i32::try_from(child.id()).unwrap()).unwrap()
}

#[test]
fn a_process_is_held_until_it_ends() {
    let mut child = start(Command::new("cat"));
    let process = open(&child).unwrap();
    assert_eq!(process.name(), "cat");
    assert_eq!(process.to_string(), format!("process {} (cat)", child.id()));
    assert!(process.is_alive().unwrap());
    assert_eq!(process.state().unwrap(), TaskState::Live);
    process.kill().unwrap();
    child.wait().unwrap();
    assert!(!process.is_alive().unwrap());
    assert_eq!(process.state().unwrap(), TaskState::Ended);
    process.kill().unwrap();
    assert!(open(&child).is_none());
}

/// A name of three-byte letters, cut after 15 bytes in the middle of one, and a mapped file (the
/// program itself) with a name in Latin-1.
#[test]
fn a_name_need_not_be_utf_8() {
    let directory = tempfile::tempdir().unwrap();
    for name in [
        "a训练程序主进程".as_bytes(),
        b"mod\xe8le\n\x1b[31m",
        b"a) R (b",
    ] {
        let program = directory.path().join(OsStr::from_bytes(name));
        copy_cat(&program);
        let mut child = start(Command::new(&program));
        let process = open(&child).unwrap();
        assert!(!process.may_use_cuda().unwrap());
        let shown = process.name();
        assert!(!shown.contains(['\n', '\x1b']), "{shown:?}");
        assert_eq!(process.state().unwrap(), TaskState::Live);
        process.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn a_zombie_is_no_process() {
    let mut child = start(Command::new("cat"));
    child.kill().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    while Stat::of(pid).unwrap().unwrap().state != TaskState::Ended {
        std::thread::yield_now();
    }
    assert!(open(&child).is_none());
    child.wait().unwrap();
}

#[test]
fn our_own_pid_is_that_of_our_namespace() {
    let own = i32::try_from(std::process::id()).unwrap();
    let process = ProcessRef::open(own).unwrap().unwrap();
    assert_eq!(process.pid_at_depth(0), Some(own));
    assert_eq!(process.pid_at_depth(process.namespace_depth() + 1), None);
}

#[test]
fn a_parent_is_known_as_long_as_its_child_lives() {
    let mut child = start(Command::new("cat"));
    let process = ProcessRef::open(i32::try_from(child.id()).unwrap());
    let process = process.unwrap().unwrap();
    let parent = process.parent().unwrap().unwrap();
    assert_eq!(u32::try_from(parent.pid()).unwrap(), std::process::id());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(process.parent().unwrap().is_none());
}

#[test]
fn there_is_no_process_zero() {
    assert!(ProcessRef::open(0).unwrap().is_none());
    assert!(ProcessRef::open(-1).unwrap().is_none());
}
