//! kcmp(2): whether two processes share an open file.
#![allow(unsafe_code)]

use std::io;

use nix::errno::Errno;
use nix::libc;

use crate::process::ProcessRef;

/// `KCMP_FILE` (linux/kcmp.h).
const FILE: libc::c_int = 0;

/// Whether a descriptor of one process and a descriptor of another are the same open file: one
/// was inherited from the other, or sent over a socket, and not opened anew. A descriptor that is
/// not open is none.
///
/// # Errors
/// The error of kcmp(2); CRIU needs a kernel that has it, too.
pub fn same_file(one: (&ProcessRef, u32), other: (&ProcessRef, u32)) -> io::Result<bool> {
    // SAFETY: kcmp takes five numbers and touches no memory of ours.
    let result = unsafe {
        libc::syscall(
            libc::SYS_kcmp,
            one.0.pid(),
            other.0.pid(),
            FILE,
            one.1,
            other.1,
        )
    };
    match Errno::result(result) {
        // 1, 2 and 3 are orders of things that differ.
        Ok(order) => Ok(order == 0),
        Err(Errno::EBADF | Errno::ESRCH) => Ok(false),
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
