//! The numbers in `/proc` and `/proc/PID/task`.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::{Stat, Status, about, gone_is_none, hexadecimal, malformed, number, read, words};

/// A pid has at most 7 digits, and a process may have all pids as children.
const MAX_CHILDREN_BYTES: u64 = 32 << 20;
/// Nine numbers (proc_pid_syscall(5)).
const MAX_SYSCALL_BYTES: u64 = 4096;

/// All processes that are there, zombies included.
pub fn processes() -> io::Result<Vec<i32>> {
    let path = Path::new("/proc");
    numbers(path).map_err(|error| about(path, &error))
}

/// The threads of a process; none if it has ended.
pub fn threads(pid: i32) -> io::Result<Vec<i32>> {
    let path = format!("/proc/{pid}/task");
    let path = Path::new(&path);
    let threads = gone_is_none(numbers(path)).map_err(|error| about(path, &error))?;
    Ok(threads.unwrap_or_default())
}

/// Whether a thread is ending, or has ended. The signal is looked for first: the flags are there
/// once it has been taken.
pub(crate) fn is_dying(pid: i32, thread: i32) -> io::Result<bool> {
    let status = Status::of_thread(pid, thread)?;
    if status.is_none_or(|status| status.is_killed()) {
        return Ok(true);
    }
    Ok(Stat::of_thread(pid, thread)?.is_none_or(|stat| stat.is_dying))
}

/// The children of a process, of whichever of its threads; none if it has ended, or the kernel does
/// not tell (CONFIG_PROC_CHILDREN). One that comes or goes meanwhile may be missing.
#[must_use]
pub fn children(pid: i32) -> Vec<i32> {
    let mut found = Vec::new();
    for thread in threads(pid).unwrap_or_default() {
        found.extend(children_of_thread(pid, thread));
    }
    found
}

/// As [`children`], of one thread.
#[must_use]
pub fn children_of_thread(pid: i32, thread: i32) -> Vec<i32> {
    let path = format!("/proc/{pid}/task/{thread}/children");
    let text = read(Path::new(&path), MAX_CHILDREN_BYTES).ok().flatten();
    let text = text.unwrap_or_default();
    words(&text).filter_map(number).collect()
}

/// Where a thread waits in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// Its stack pointer.
    pub stack_pointer: u64,
    /// The address behind the instruction by which it went there.
    pub instruction: u64,
}

/// Where a thread waits in the kernel; `None` if it runs, or has ended.
pub fn waiting(pid: i32, thread: i32) -> io::Result<Option<Waiting>> {
    let path = format!("/proc/{pid}/task/{thread}/syscall");
    let path = Path::new(&path);
    let Some(text) = read(path, MAX_SYSCALL_BYTES)? else {
        return Ok(None);
    };
    if text.trim_ascii() == b"running" {
        return Ok(None);
    }
    // The call and its arguments, if it is in one, and then these two.
    let all: Vec<&[u8]> = words(&text).collect();
    let address = |from_end: usize| {
        let word = all.get(all.len().checked_sub(from_end)?)?;
        word.strip_prefix(b"0x").and_then(hexadecimal)
    };
    match (address(2), address(1)) {
        (Some(stack_pointer), Some(instruction)) => Ok(Some(Waiting {
            stack_pointer,
            instruction,
        })),
        _ => Err(malformed(path)),
    }
}

fn numbers(directory: &Path) -> io::Result<Vec<i32>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(directory)? {
        numbers.extend(number::<i32>(entry?.file_name().as_bytes()));
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_thread_is_one_of_ours() {
        let own = i32::try_from(std::process::id()).unwrap();
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        assert!(threads(own).unwrap().contains(&thread));
        assert_eq!(threads(i32::MAX).unwrap(), []);
        assert!(processes().unwrap().contains(&own));
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        assert!(children(own).contains(&i32::try_from(child.id()).unwrap()));
        let pid = i32::try_from(child.id()).unwrap();
        // It may still run, and then waits for its input.
        while waiting(pid, pid).unwrap().is_none() {
            std::thread::yield_now();
        }
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(children(i32::MAX), []);
        assert_eq!(waiting(i32::MAX, 1).unwrap(), None);
    }
}
