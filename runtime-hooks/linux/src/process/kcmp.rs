//! kcmp(2): whether two processes share an open file, their memory or their descriptors.
#![allow(unsafe_code)]

use std::cmp::Ordering;
use std::io;

use nix::errno::Errno;
use nix::libc;

use crate::process::ProcessRef;

/// The resource that is compared (linux/kcmp.h).
#[derive(Debug, Clone, Copy)]
#[repr(i32)]
enum Compared {
    File = 0,
    Memory = 1,
    Descriptors = 2,
}

/// Returns whether a descriptor of one process and a descriptor of another are the same open file:
/// one was inherited from the other, or sent over a socket, and not opened anew. A descriptor that
/// is not open is never the same.
///
/// # Errors
/// The error of kcmp(2); CRIU needs a kernel that has it, too.
pub fn same_file(one: (&ProcessRef, u32), other: (&ProcessRef, u32)) -> io::Result<bool> {
    same(Compared::File, one, other)
}

/// Whether two processes have one memory (`CLONE_VM`, as vfork(2) makes them) or one table of
/// descriptors (`CLONE_FILES`): what is changed in one is changed in the other.
pub fn shares_memory_or_descriptors(one: &ProcessRef, other: &ProcessRef) -> io::Result<bool> {
    let (one, other) = ((one, 0), (other, 0));
    Ok(same(Compared::Memory, one, other)? || same(Compared::Descriptors, one, other)?)
}

/// Returns how the kernel orders the memories of two processes, by their pids; the order is stable,
/// and equal if both share one. Processes that have ended and wait for their parents are all equal.
/// `None` if a process is gone, or has no such order.
pub fn order_of_memories(one: i32, other: i32) -> io::Result<Option<Ordering>> {
    let order = compare(Compared::Memory, (one, 0), (other, 0))?;
    Ok(match order {
        Some(0) => Some(Ordering::Equal),
        Some(1) => Some(Ordering::Less),
        Some(2) => Some(Ordering::Greater),
        _ => None,
    })
}

fn same(what: Compared, one: (&ProcessRef, u32), other: (&ProcessRef, u32)) -> io::Result<bool> {
    let order = compare(what, (one.0.pid(), one.1), (other.0.pid(), other.1))?;
    Ok(order == Some(0))
}

/// Returns 0 for the same resource; 1, 2 and 3 for orders of different ones. `None` if one is gone.
fn compare(what: Compared, one: (i32, u32), other: (i32, u32)) -> io::Result<Option<i64>> {
    // SAFETY: kcmp takes five numbers and touches no memory of ours.
    let result =
        unsafe { libc::syscall(libc::SYS_kcmp, one.0, other.0, what as i32, one.1, other.1) };
    match Errno::result(result) {
        Ok(order) => Ok(Some(order)),
        Err(Errno::EBADF | Errno::ESRCH) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn sleeper(input: &File) -> Child {
        let input = Stdio::from(input.try_clone().unwrap());
        Command::new("sleep")
            .arg("60")
            .stdin(input)
            .spawn()
            .unwrap()
    }

    #[test]
    fn what_was_inherited_is_told_from_what_was_opened() {
        let file = File::open("/dev/zero").unwrap();
        let mut children = [&file, &file, &File::open("/dev/zero").unwrap()].map(sleeper);
        let [one, same, other] = [0, 1, 2].map(|index| {
            let pid = i32::try_from(children[index].id()).unwrap();
            ProcessRef::open(pid).unwrap().unwrap()
        });
        assert!(same_file((&one, 0), (&same, 0)).unwrap());
        assert!(!same_file((&one, 0), (&other, 0)).unwrap());
        assert!(!same_file((&one, 0), (&same, 77)).unwrap());
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
