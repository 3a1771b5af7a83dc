//! ioprio_get(2) and ioprio_set(2), of one thread.
#![allow(unsafe_code)]

use std::io;

use nix::errno::Errno;
use nix::libc;

/// `IOPRIO_WHO_PROCESS` (linux/ioprio.h): despite its name, of a thread.
const OF_THREAD: i32 = 1;
/// `IOPRIO_CLASS_SHIFT`.
const CLASS_SHIFT: u16 = 13;

/// A class and a level; `None` for a thread that has none of its own: then its nice value counts,
/// and kernels answer with different levels.
pub(super) fn get(thread: i32) -> io::Result<Option<u16>> {
    // SAFETY: it takes two numbers and touches no memory of ours.
    let result = unsafe { libc::syscall(libc::SYS_ioprio_get, OF_THREAD, thread) };
    let found = u16::try_from(Errno::result(result)?).unwrap_or_default();
    Ok(Some(found).filter(|priority| priority >> CLASS_SHIFT != 0))
}

/// Sets what [`get`] has found.
pub(super) fn set(thread: i32, priority: Option<u16>) -> io::Result<()> {
    let priority = i32::from(priority.unwrap_or_default());
    // SAFETY: it takes three numbers and touches no memory of ours.
    let result = unsafe { libc::syscall(libc::SYS_ioprio_set, OF_THREAD, thread, priority) };
    Ok(Errno::result(result).map(drop)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_set_is_found_until_there_is_none() {
        let of_a_thread = std::thread::spawn(|| {
            let this = rustix::thread::gettid().as_raw_nonzero().get();
            let before = get(this).unwrap();
            // The idle class.
            set(this, Some(3 << CLASS_SHIFT)).unwrap();
            let during = get(this).unwrap();
            set(this, None).unwrap();
            (before, during, get(this).unwrap())
        });
        let found = of_a_thread.join().unwrap();
        assert_eq!(found, (None, Some(3 << CLASS_SHIFT), None));
        get(i32::MAX).unwrap_err();
    }
}
