//! The processes of an operation that are killed beside the one whose calls are counted.

use std::fs;
use std::process::ChildStderr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::check::process_tree::{parent, processes, started_by};
use crate::faults::Action;

/// Kills a process that is found from the program, if there is one.
pub(super) fn kill_found(find: impl FnOnce(Pid) -> Option<Pid> + Send + 'static) -> Action {
    Action::Do(Box::new(move |program| {
        kill_if_there(find(program));
        Ok(())
    }))
}

/// Kills the caller that has started an operation and reads its output. In a test host this is the
/// program that brought the operation into the host, and waits for it.
pub(super) fn kill_caller(reader: Arc<Mutex<Option<ChildStderr>>>) -> Action {
    Action::Do(Box::new(move |operation| {
        drop(taken(&reader));
        kill_if_there(parent(operation));
        Ok(())
    }))
}

/// Takes the reader of an operation's output, if there still is one.
pub(super) fn taken(reader: &Mutex<Option<ChildStderr>>) -> Option<ChildStderr> {
    let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
    reader.take()
}

/// Kills CRIU, and records whether it held tasks by ptrace then.
pub(super) fn kill_criu(tasks_were_held: Arc<AtomicBool>) -> Action {
    Action::Do(Box::new(move |criu| {
        let held = processes().any(|process| tracer(process) == Some(criu));
        tasks_were_held.store(held, Ordering::SeqCst);
        Ok(kill(criu, Signal::SIGKILL)?)
    }))
}

/// Returns the process that undoes what an operation has begun, if there is one.
pub(super) fn keeper_of(operation: Pid) -> Option<Pid> {
    started_by(operation, "stasis-keeper")
}

fn tracer(pid: Pid) -> Option<Pid> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let tracer = status
        .lines()
        .find_map(|line| line.strip_prefix("TracerPid:"))?;
    Some(Pid::from_raw(tracer.trim().parse().ok()?))
}

fn kill_if_there(process: Option<Pid>) {
    if let Some(process) = process {
        let _ = kill(process, Signal::SIGKILL);
    }
}
