//! prctl(2) `PR_SET_PDEATHSIG`: a child that does not outlive its parent.
#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

/// Makes the kernel kill the program that `command` starts when the calling *thread* ends.
pub fn kill_with_parent(command: &mut Command) {
    let parent = getpid();
    // SAFETY: the closure runs between fork and exec and makes two system calls; it allocates
    // nothing and takes no lock, so it is async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // The signal is not sent for a parent that ended before the call.
            if getppid() == Some(parent) {
                Ok(())
            } else {
                Err(io::ErrorKind::BrokenPipe.into())
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn the_child_ends_with_the_thread_that_started_it() {
        let mut child = std::thread::spawn(|| {
            let mut command = Command::new("sleep");
            kill_with_parent(command.arg("60"));
            command.spawn().unwrap()
        })
        .join()
        .unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }
}
