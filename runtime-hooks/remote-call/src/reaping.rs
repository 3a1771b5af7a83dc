//! Reaps processes of whose end their parent never hears.

use std::io;

use nix::libc;

use crate::event::Deadline;
use crate::seized::SeizedThread;

/// Has a process reap children that send no signal when they end, by their numbers in its own pid
/// namespace, and waits for children that are just ending. Skips numbers that are no such children:
/// a program may have reaped them itself (`__WALL`). Calls `is_gone` as
/// [`crate::Proxy::of_running`] does.
///
/// # Errors
/// Errors of ptrace(2) and the call; `TimedOut` for a child that does not end.
pub fn reap(pid: i32, inside: &[i32], is_gone: impl FnOnce() -> bool) -> io::Result<()> {
    let deadline = Deadline::soon();
    let mut owner = SeizedThread::stop(pid, is_gone)?;
    for child in inside.iter().filter(|child| **child > 0) {
        let arguments = reaping(child.unsigned_abs().into());
        while !is_reaped(owner.call(libc::SYS_wait4, &arguments))? {
            deadline.poll()?;
        }
    }
    Ok(())
}

/// Returns the arguments of a wait4(2), without waiting, for a child that sends no signal when it
/// ends, and for no child of the program's own.
pub(crate) fn reaping(pid_inside: u64) -> [u64; 4] {
    let flags = (libc::__WCLONE | libc::WNOHANG).cast_unsigned().into();
    [pid_inside, 0, flags, 0]
}

/// Returns whether such a call leaves nothing to reap. The program may have reaped it itself.
pub(crate) fn is_reaped(called: io::Result<u64>) -> io::Result<bool> {
    match called {
        Ok(reaped) => Ok(reaped != 0),
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(true),
        Err(error) => Err(error),
    }
}
