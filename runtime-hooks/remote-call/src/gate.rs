//! Finds a system call instruction in a process: in its vDSO.
//!
//! Every vDSO has one, for calls that it cannot answer itself. A process decides what it maps and
//! how its files are called, so the mapping is recognised by its whole name, which for a file
//! always is a path; sizes are bounded, and names are bytes.

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;

use stasis_linux::procfs::{Mapping, for_each_mapping};

use crate::registers::{GATE, Gate};

/// The largest vDSO: on all our machines it has two to four pages.
const VDSO_BYTES: u64 = 64 << 10;

/// Returns the address of a system call instruction, without a stack.
///
/// # Errors
/// Errors of `/proc`; a process without a vDSO.
pub(crate) fn gate(pid: i32) -> io::Result<Gate> {
    let found = for_each_mapping(pid, |mapping| match is_vdso(&mapping) {
        true => ControlFlow::Break((mapping.start, mapping.length())),
        false => ControlFlow::Continue(()),
    });
    let (start, bytes) = found?.ok_or_else(|| io::Error::other("it has no vDSO"))?;
    if bytes > VDSO_BYTES {
        return Err(io::Error::other("its vDSO is too large"));
    }
    let mut code = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
    File::open(format!("/proc/{pid}/mem"))?.read_exact_at(&mut code, start)?;
    let found = code.windows(GATE.len()).position(|bytes| bytes == GATE);
    let offset = found.ok_or_else(|| io::Error::other("its vDSO has no system call"))?;
    Ok(Gate {
        instruction: start + offset as u64,
        stack: 0,
    })
}

/// Compares with the kernel's name for it, which no file has: files have paths.
fn is_vdso(mapping: &Mapping<'_>) -> bool {
    mapping.path == b"[vdso]"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_vdso_itself_is_taken() {
        let is_it = |line: &[u8]| is_vdso(&Mapping::parse(line).unwrap());
        assert!(is_it(
            b"7ffd0000-7ffd2000 r-xp 00000000 00:00 0          [vdso]\n"
        ));
        let others: [&[u8]; 4] = [
            b"10000-20000 r-xp 00000000 00:2a 7           /tmp/\xff [vdso]\n",
            b"30000-40000 r-xp 00000000 00:2a 7           /tmp/[vdso]\n",
            b"50000-60000 rw-p 00000000 00:00 0           [anon:[vdso]]\n",
            b"70000-80000 rw-p 00000000 00:00 0 \n",
        ];
        for other in others {
            assert!(!is_it(other), "{}", other.escape_ascii());
        }
    }
}
