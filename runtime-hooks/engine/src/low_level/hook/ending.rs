//! Ends what a hook has started.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use stasis_linux::ProcessRef;
use stasis_linux::procfs::{Stat, processes};

use crate::container::Container;

/// How long processes may take to end after SIGKILL: a frozen one does not end before it thaws.
const MOST: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(10);

/// Ends all processes of which `is_one` is true; returns how many have not ended. They are stopped
/// first, until no further one is found: a process that forks all the time would outrun us.
pub(super) fn end(is_one: impl Fn(&Stat) -> bool) -> usize {
    let deadline = Instant::now() + MOST;
    let mut stopped = BTreeSet::new();
    loop {
        let found = find(&is_one).unwrap_or_default();
        let is_overdue = Instant::now() > deadline;
        let mut is_one_new = false;
        for process in &found {
            if stopped.insert((process.pid(), process.start_time())) {
                is_one_new = true;
                let _ = process.stop();
            }
        }
        if !is_one_new || is_overdue {
            for process in &found {
                let _ = process.kill();
            }
        }
        if found.is_empty() || is_overdue {
            return found.len();
        }
        sleep(POLL);
    }
}

fn find(is_one: impl Fn(&Stat) -> bool) -> io::Result<Vec<ProcessRef>> {
    let mut found = Vec::new();
    for pid in processes()? {
        let seen = Stat::of(pid).ok().flatten().filter(&is_one);
        let opened = seen.and_then(|_| ProcessRef::open(pid).ok().flatten());
        let Some(process) = opened else {
            continue;
        };
        // The number may have become another's before it was opened.
        let still = Stat::of(pid).ok().flatten().filter(&is_one);
        if still.is_some_and(|stat| stat.start_time == process.start_time()) {
            found.push(process);
        }
    }
    Ok(found)
}

/// Ends a hook whose watcher was killed: the session of the process in the pid file, if that is in
/// the container. The kernel does not reuse a session's number as long as it has a member.
pub(super) fn end_left(pid_file: &Path, container: &Container) {
    let Some(leader) = pid_in(pid_file) else {
        return;
    };
    let is_of_container = |pid: &i32| {
        let pids = container.cgroup().pids();
        pids.is_ok_and(|pids| pids.into_iter().any(|one| one == *pid))
    };
    if is_of_container(&leader) {
        end(|stat| stat.session == leader);
    }
}

/// The pid that the low-level runtime has written.
pub(super) fn pid_in(file: &Path) -> Option<i32> {
    let pid = fs::read_to_string(file).ok()?.trim().parse().ok();
    // Processes of other namespaces' sessions have 0.
    pid.filter(|pid| *pid > 1)
}
