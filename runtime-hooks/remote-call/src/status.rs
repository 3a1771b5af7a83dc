//! The state of traced processes, from `/proc`.

use std::io;

use nix::unistd::gettid;
use stasis_linux::procfs::{Status, TaskState, children_of_thread};

/// Returns whether a thread has not ended.
pub(crate) fn is_alive(thread: i32) -> io::Result<bool> {
    let state = Status::of(thread)?.and_then(|status| status.state());
    Ok(!matches!(state, None | Some(TaskState::Ended)))
}

/// Returns the child of a thread that has this pid in the thread's own pid namespace, and that the
/// calling thread traces.
pub(crate) fn traced_child(thread: i32, pid_inside: u64) -> io::Result<i32> {
    let pid_inside = i32::try_from(pid_inside).map_err(io::Error::other)?;
    let depth = namespace_depth(thread)?;
    for child in children_of_thread(thread, thread) {
        let Some(status) = Status::of(child)? else {
            continue;
        };
        // In another namespace the same number is a different process.
        let pids = status.namespace_pids().unwrap_or_default();
        if status.tracer() == Some(gettid().as_raw()) && pids.get(depth) == Some(&pid_inside) {
            return Ok(child);
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

/// Returns how many pid namespaces below ours a thread lives.
fn namespace_depth(thread: i32) -> io::Result<usize> {
    let pids = Status::of(thread)?.and_then(|status| status.namespace_pids());
    let levels = pids.ok_or(io::ErrorKind::NotFound)?.len();
    levels
        .checked_sub(1)
        .ok_or(io::ErrorKind::InvalidData.into())
}
