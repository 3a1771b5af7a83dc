//! setrlimit(2) `RLIMIT_NOFILE`: how many files this process may have open, and its children.
//!
//! containerd, Docker and podman start a runtime with a soft limit of 1024 at most times, for the
//! sake of old programs with select(2). We hold a pidfd for each CUDA process, and some files more.
#![allow(unsafe_code)]

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit with which this process was started.
static CALLERS: OnceLock<Rlimit> = OnceLock::new();
/// More than we will ever need: a pidfd for each process of a large machine.
const ENOUGH: u64 = 1 << 20;

/// Raises the soft limit of this process to the hard one. If that fails, the limit stays, and an
/// operation that needs more files fails.
pub fn raise_limit() {
    let callers = *CALLERS.get_or_init(|| getrlimit(Resource::Nofile));
    let wanted = callers.maximum.unwrap_or(ENOUGH).min(ENOUGH);
    if callers.current.is_some_and(|current| current < wanted) {
        let raised = Rlimit {
            current: Some(wanted),
            ..callers
        };
        let _ = setrlimit(Resource::Nofile, raised);
    }
}

/// Gives the program that `command` starts the limit that our caller gave us: it would have that
/// limit without us, and hands it on to containers.
pub fn keep_callers_limit(command: &mut Command) {
    let Some(callers) = CALLERS.get().copied() else {
        return;
    };
    // SAFETY: the closure runs between fork and exec and makes one system call; it allocates
    // nothing and takes no lock, so it is async-signal-safe.
    unsafe {
        command.pre_exec(move || Ok(setrlimit(Resource::Nofile, callers)?));
    }
}
