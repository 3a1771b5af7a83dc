//! Processes that share memory and descriptors with another.

use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{WaitPidFlag, waitpid};

use super::program::Program;
use super::*;
use crate::{Proxy, Shared, reap};

pub(super) fn zombies_of(parent: &Child) -> String {
    let tasks = format!("/proc/{0}/task/{0}/children", parent.id());
    fs::read_to_string(tasks).unwrap()
}

#[test]
fn a_proxy_maps_and_closes_for_its_owner() {
    let mut child = Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    until(|| is_asleep(&child));
    let maps = || fs::read_to_string(format!("/proc/{}/maps", child.id())).unwrap();
    let descriptors = || {
        fs::read_dir(format!("/proc/{}/fd", child.id()))
            .unwrap()
            .count()
    };
    let (mappings, open) = (maps().lines().count(), descriptors());
    let mut proxy = Proxy::of_running(pid(&child), Shared::MemoryAndDescriptors, || false).unwrap();
    let place = proxy
        .call(libc::SYS_mmap, &[0, 8192, 1, 0x22, u64::MAX, 0])
        .unwrap();
    assert!(maps().contains(&format!("{place:x}-{:x}", place + 8192)));
    proxy.call(libc::SYS_munmap, &[place, 8192]).unwrap();
    assert_eq!(maps().lines().count(), mappings);
    // The process that runs the tests may have left descriptors with low numbers open.
    let free = 500;
    let copy = proxy.call(libc::SYS_dup3, &[1, free, 0]).unwrap();
    assert_eq!((copy, descriptors()), (free, open + 1));
    proxy.call(libc::SYS_close, &[free]).unwrap();
    assert_eq!(descriptors(), open);
    proxy.end().unwrap();
    assert_eq!(zombies_of(&child), "");
    child.stdin.take().unwrap().write_all(b"whole").unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"whole");
}

#[test]
fn descriptors_are_the_owners_alone_if_only_memory_is_shared() {
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    until(|| is_asleep(&child));
    let mut proxy = Proxy::of_running(pid(&child), Shared::Memory, || false).unwrap();
    proxy.call(libc::SYS_close, &[1]).unwrap();
    assert!(fs::exists(format!("/proc/{}/fd/1", child.id())).unwrap());
    drop(proxy);
    assert_eq!(zombies_of(&child), "");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// As if our process were killed: its proxy ends, and the owner keeps its own registers.
#[test]
fn a_proxy_dies_with_whoever_made_it() {
    let mut child = Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    until(|| is_asleep(&child));
    let owner = pid(&child);
    let proxy = std::thread::spawn(move || {
        let proxy = Proxy::of_running(owner, Shared::Memory, || false).unwrap();
        let own = proxy.pid();
        std::mem::forget(proxy);
        own
    });
    let own = proxy.join().unwrap();
    reap(owner, &[own], || false).unwrap();
    assert!(!fs::exists(format!("/proc/{own}")).unwrap());
    assert_eq!(zombies_of(&child), "");
    child.stdin.take().unwrap().write_all(b"whole").unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"whole");
}

/// A handler that the kernel resets because of a signal of ours would be lost.
#[test]
fn handlers_of_signals_survive() {
    let mut program = Program::waiting(include_str!("trapper.c"), |_| Vec::<String>::new());
    until(|| is_asleep(&program.child));
    let owner = pid(&program.child);
    let mut proxy = Proxy::of_running(owner, Shared::Memory, || false).unwrap();
    assert!(proxy.call(libc::SYS_getpid, &[]).is_ok());
    proxy.end().unwrap();
    kill(Pid::from_raw(owner), Signal::SIGTRAP).unwrap();
    assert_eq!(program.child.wait().unwrap().code(), Some(42));
}

/// clone(2) returns a number of its caller's pid namespace. In ours a sibling of the proxy may have
/// the same number: that process is the container's, and must live.
#[test]
fn a_sibling_that_has_the_number_elsewhere_is_not_the_proxy() {
    let script = "sleep 60 & echo up; read last; echo $last >/proc/sys/kernel/ns_last_pid; \
                  echo set; read end";
    let mut namespace = Command::new("unshare")
        .args(["--user", "--map-root-user", "--pid", "--fork"])
        .args(["--kill-child", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(namespace.stdout.take().unwrap()).lines();
    let mut input = namespace.stdin.take().unwrap();
    assert_eq!(output.next().unwrap().unwrap(), "up");
    let owner = only_child(pid(&namespace));
    let sibling = only_child(owner.as_raw());
    writeln!(input, "{}", sibling.as_raw() - 1).unwrap();
    assert_eq!(output.next().unwrap().unwrap(), "set");
    seize(sibling);

    let mut proxy = Proxy::of_running(owner.as_raw(), Shared::Memory, || false).unwrap();
    assert_ne!(proxy.pid(), sibling.as_raw());
    let number = u64::try_from(sibling.as_raw()).unwrap();
    assert_eq!(proxy.call(libc::SYS_getpid, &[]).unwrap(), number);
    proxy.end().unwrap();
    assert_eq!(only_child(owner.as_raw()), sibling, "it lives");

    ptrace::detach(sibling, None).unwrap();
    namespace.kill().unwrap();
    namespace.wait().unwrap();
}

fn only_child(of: i32) -> Pid {
    let mut child = None;
    until(|| {
        let children = fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap();
        child = children.trim().parse().ok();
        child.is_some()
    });
    Pid::from_raw(child.unwrap())
}

/// Traces a process, and stops it.
fn seize(process: Pid) {
    ptrace::seize(process, Options::empty()).unwrap();
    ptrace::interrupt(process).unwrap();
    waitpid(process, Some(WaitPidFlag::__WALL)).unwrap();
}
