//! System V segments that are marked as removed: each goes with the last who has it mapped.
//!
//! CRIU restores the segments and not the mark (criu/ipc_ns.c), so they would stay.
#![allow(unsafe_code)]

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::ptr::null_mut;

use nix::errno::Errno;
use nix::libc;
use rustix::thread::LinkNameSpaceType;

use crate::process::network::in_namespace;
use crate::procfs::{number, words};

/// `SHM_DEST` (linux/shm.h).
const REMOVED: u32 = 0o1000;

/// The segments of a process's IPC namespace that are marked, if the namespace is not our own.
pub fn removed_segments(pid: i32) -> io::Result<Vec<i32>> {
    in_ipc_of(pid, || {
        // The kernel shows the segments of the opener's IPC namespace.
        let text = fs::read("/proc/sysvipc/shm")?;
        Ok(text
            .split(|byte| *byte == b'\n')
            .filter_map(removed)
            .collect())
    })
}

/// Marks segments in a process's IPC namespace, if that is not our own.
pub fn remove_segments(pid: i32, segments: &[i32]) -> io::Result<()> {
    in_ipc_of(pid, || {
        segments.iter().try_for_each(|segment| remove(*segment))
    })
}

fn remove(segment: i32) -> io::Result<()> {
    // SAFETY: of this command the kernel reads and writes nothing through the pointer.
    let result = unsafe { libc::shmctl(segment, libc::IPC_RMID, null_mut()) };
    Ok(Errno::result(result).map(drop)?)
}

/// The number of the segment of a line, if it is marked: the second and third column, the latter
/// octal (ipc/shm.c, `sysvipc_shm_proc_show`).
fn removed(line: &[u8]) -> Option<i32> {
    let mut columns = words(line).skip(1);
    let segment = number(columns.next()?)?;
    let mode = str::from_utf8(columns.next()?).ok()?;
    let mode = u32::from_str_radix(mode, 8).ok()?;
    (mode & REMOVED != 0).then_some(segment)
}

/// Does `work` in the IPC namespace of a process; nothing if that is our own.
fn in_ipc_of<T: Default + Send>(
    pid: i32,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let name = format!("/proc/{pid}/ns/ipc");
    if fs::read_link(&name)? == fs::read_link("/proc/self/ns/ipc")? {
        return Ok(T::default());
    }
    let namespace = File::open(name)?;
    in_namespace(
        namespace.as_fd(),
        LinkNameSpaceType::InterProcessCommunication,
        work,
    )
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn one_is_marked_in_another_namespace_and_found_there() {
        // It has one mapped that is not marked, and says which.
        let script = "import ctypes, sys, time\n\
            libc = ctypes.CDLL(None)\n\
            libc.shmat.restype = ctypes.c_void_p\n\
            segment = libc.shmget(0, 4096, 0o600)\n\
            libc.shmat(segment, None, 0)\n\
            print(segment, flush=True)\n\
            time.sleep(60)";
        let mut theirs = Command::new("unshare")
            .args(["--ipc", "python3", "-c", script])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(theirs.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let segment = line.trim().parse().unwrap();
        let pid = theirs.id().cast_signed();
        assert_eq!(removed_segments(pid).unwrap(), []);
        remove_segments(pid, &[segment]).unwrap();
        assert_eq!(removed_segments(pid).unwrap(), [segment]);
        remove_segments(pid, &[segment + 1]).unwrap_err();
        theirs.kill().unwrap();
        theirs.wait().unwrap();
    }

    #[test]
    fn nothing_is_done_in_our_own_namespace() {
        let own = std::process::id().cast_signed();
        assert_eq!(removed_segments(own).unwrap(), []);
        remove_segments(own, &[i32::MAX]).unwrap();
        assert_eq!(removed(b"0 5 1600 4096"), Some(5));
        assert_eq!(removed(b"0 5 600 4096"), None);
        assert_eq!(removed(b"       key      shmid perms"), None);
    }
}
