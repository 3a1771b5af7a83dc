//! Asks the process that operates on a container to end, so that the container can be deleted.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use stasis_host::file_lock::{Sharing, Tried, try_lock};
use stasis_linux::{ProcessRef, file};

use crate::operation::directory::directory_of;
use crate::operation::lock::NAME;

/// Sends SIGTERM to the process that operates on a container; it rolls back at the next step
/// boundary (`host/src/cancel.rs`). Never SIGKILL: it would interrupt a driver call.
pub fn ask_to_end(state_dir: &Path, root: &Path, id: &str) -> io::Result<()> {
    let lock = directory_of(state_dir, root, id).join(NAME);
    let Some(pid) = holder(&lock)? else {
        return Ok(());
    };
    let Some(process) = ProcessRef::open(pid)? else {
        return Ok(());
    };
    // Before it was opened, the holder may have ended and its pid been reused.
    match holder(&lock)? == Some(pid) {
        true => process.terminate(),
        false => Ok(()),
    }
}

/// The pid in the lock file while the lock is held. `None` also before the holder has written it,
/// and of a recovery, which ends by itself once the container has.
fn holder(lock: &Path) -> io::Result<Option<i32>> {
    let Some(mut file) = file::if_exists(File::open(lock))? else {
        return Ok(None);
    };
    if try_lock(&file, Sharing::Shared)? == Tried::Locked {
        // Closing the file releases the lock at once.
        return Ok(None);
    }
    let mut pid = String::new();
    file.read_to_string(&mut pid)?;
    Ok(pid.parse().ok())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Command, Stdio};

    use nix::libc;

    use super::*;
    use crate::operation::Operation;

    const ROOT: &str = "/run/runc";

    /// Takes the lock and writes the pid of a child process, as if that were an operation.
    fn operation_of(state: &Path, process: &Child) -> Operation {
        let operation = Operation::begin(state, Path::new(ROOT), "c1").unwrap();
        fs::write(operation.directory().join(NAME), process.id().to_string()).unwrap();
        operation
    }

    fn waiting() -> Child {
        Command::new("cat").stdin(Stdio::piped()).spawn().unwrap()
    }

    #[test]
    fn the_holder_of_the_lock_is_asked() {
        let state = tempfile::tempdir().unwrap();
        let mut process = waiting();
        let _operation = operation_of(state.path(), &process);
        ask_to_end(state.path(), Path::new(ROOT), "c1").unwrap();
        assert_eq!(process.wait().unwrap().signal(), Some(libc::SIGTERM));
    }

    #[test]
    fn a_pid_in_a_lock_that_nobody_holds_is_not_believed() {
        let state = tempfile::tempdir().unwrap();
        let mut process = waiting();
        let operation = operation_of(state.path(), &process);
        let lock = operation.directory().join(NAME);
        drop(operation);
        fs::create_dir_all(lock.parent().unwrap()).unwrap();
        fs::write(&lock, process.id().to_string()).unwrap();
        ask_to_end(state.path(), Path::new(ROOT), "c1").unwrap();
        // It ends by itself, at the end of its input.
        drop(process.stdin.take());
        assert!(process.wait().unwrap().success());
    }

    #[test]
    fn a_container_without_an_operation_is_nobodys() {
        let state = tempfile::tempdir().unwrap();
        ask_to_end(state.path(), Path::new(ROOT), "c1").unwrap();
    }
}
