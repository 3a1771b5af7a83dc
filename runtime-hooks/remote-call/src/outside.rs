//! Whether any thread of a process is in a piece of code.

use std::io;
use std::ops::Range;

use nix::unistd::Pid;
use stasis_linux::procfs::{threads, waiting};

use crate::event::Deadline;
use crate::registers::Registers;
use crate::seized::SeizedThread;
use crate::status::is_alive;

/// Waits until every thread of a process was seen outside of a piece of its memory that none
/// enters any more: one that does not wait in the kernel is stopped for a moment. `is_gone` is
/// asked as in [`crate::Proxy::of_running`].
///
/// # Errors
/// `TimedOut` if a thread stays in there for some seconds, or cannot be stopped; those of ptrace(2)
/// and `/proc`.
pub fn wait_until_outside(
    pid: i32,
    code: &Range<u64>,
    is_gone: impl Fn() -> bool,
) -> io::Result<()> {
    let deadline = Deadline::soon();
    // One that is begun later is begun by one that is outside.
    for thread in threads(pid)? {
        while !is_outside(pid, thread, code, &is_gone)? {
            deadline.poll()?;
        }
    }
    Ok(())
}

fn is_outside(
    pid: i32,
    thread: i32,
    code: &Range<u64>,
    is_gone: impl FnOnce() -> bool,
) -> io::Result<bool> {
    // Most threads of most programs wait for something: that is seen much faster.
    if let Some(place) = waiting(pid, thread)? {
        return Ok(!code.contains(&place.instruction));
    }
    if !is_alive(thread)? {
        return Ok(true);
    }
    let looked = SeizedThread::stop_thread(pid, Pid::from_raw(thread), is_gone)
        .and_then(|seized| Registers::read(seized.thread()));
    match looked {
        Ok(registers) => Ok(!code.contains(&registers.instruction())),
        // It has ended meanwhile.
        Err(_) if !is_alive(thread)? => Ok(true),
        Err(error) => Err(error),
    }
}
