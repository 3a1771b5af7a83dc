//! Processes of test hosts whose parent was killed outside of the host.
//!
//! A process that nsenter(1) starts has its parent outside of the host's pid namespace. If that is
//! killed, the kernel gives the process to the nearest subreaper outside: the machine's first
//! process, which may leave it a zombie for a minute (find_new_reaper in the kernel's exit.c).
//! Until then the process seems to exist, and its host cannot end (zap_pid_ns_processes).

use std::fs;
use std::io;
use std::process;

use nix::sys::prctl;
use nix::sys::wait::{WaitPidFlag, waitpid};

use crate::check::process_tree::processes;

/// Makes this process the parent of such orphans from now on.
pub(in crate::host) fn adopt() -> io::Result<()> {
    Ok(prctl::set_child_subreaper(true)?)
}

/// Waits for orphans that have ended, and for no other child of this process.
pub(crate) fn reap() {
    for pid in processes() {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        if is_ended_orphan(&status, process::id()) {
            // Another thread may have waited for it.
            let _ = waitpid(pid, Some(WaitPidFlag::WNOHANG));
        }
    }
}

/// Whether the process with this /proc/PID/status is an orphan that has ended. Children that this
/// process itself has started are in no pid namespace below.
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
