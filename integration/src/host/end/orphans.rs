//! Processes of test hosts whose parent was killed outside of the host.
//!
//! What nsenter(1) has started has its parent outside of the host's pid namespace. If that is
//! killed, the kernel gives the process to the nearest ancestor outside that takes such ones: the
//! machine's first process, which may let it be a zombie for a minute (find_new_reaper in the
//! kernel's exit.c). Until then the process seems to be there, and its host cannot end
//! (zap_pid_ns_processes).

use std::fs;
use std::io;
use std::process;

use nix::sys::prctl;
use nix::sys::wait::{WaitPidFlag, waitpid};

use crate::check::process_tree::processes;

/// From now on they come to this process.
pub(in crate::host) fn adopt() -> io::Result<()> {
    Ok(prctl::set_child_subreaper(true)?)
}

/// Waits for those that have ended, and for no other child of this process.
pub(crate) fn reap() {
    for pid in processes() {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        if is_ended_orphan(&status, process::id()) {
            // Another thread may have done so.
            let _ = waitpid(pid, Some(WaitPidFlag::WNOHANG));
        }
    }
}

/// Says it of a process with this /proc/PID/status. What this process itself has started is in no
/// pid namespace below.
fn is_ended_orphan(status: &str, this_process: u32) -> bool {
    let field = |name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().split_whitespace()
    };
    let is_zombie = field("State:").next() == Some("Z");
    let is_child = field("PPid:").next() == Some(&this_process.to_string());
    is_zombie && is_child && field("NSpid:").count() > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(state: &str, parent: u32, pids: &str) -> String {
        format!("Name:\tx\nState:\t{state} (x)\nPPid:\t{parent}\nNSpid:\t{pids}\n")
    }

    #[test]
    fn only_zombies_of_hosts_that_came_to_this_process_are_waited_for() {
        assert!(is_ended_orphan(&status("Z", 7, "812\t40"), 7));
        assert!(!is_ended_orphan(&status("S", 7, "812\t40"), 7));
        assert!(!is_ended_orphan(&status("Z", 1, "812\t40"), 7));
        assert!(!is_ended_orphan(&status("Z", 7, "812"), 7));
        assert!(!is_ended_orphan("", 7));
    }
}
