//! The tasks that CRIU has stopped.

use std::fs::File;
use std::io;

use nix::sys::ptrace::{Options, setoptions};
use nix::unistd::Pid;
use stasis_linux::procfs::{Status, TaskState, processes, threads};
use stasis_linux::tree::descendants;
use stasis_remote_call::thread_addresses;

use crate::error::Error;
use crate::tasks::smaps::{self, Mapping};

/// A process that this one traces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Task {
    /// In our pid namespace.
    pub(crate) pid: i32,
    /// In the container's namespace; a restore gives it the same pid there.
    pub(crate) pid_inside: i32,
}

impl Task {
    /// This process, if we trace it. It may have ended. The container's pid namespace is `depth`
    /// below ours, or else the process's own.
    fn traced(pid: i32, depth: Option<usize>) -> io::Result<Option<Self>> {
        let Some(status) = Status::of(pid)? else {
            return Ok(None);
        };
        if status.tracer() != i32::try_from(std::process::id()).ok() {
            return Ok(None);
        }
        let pids = status.namespace_pids().unwrap_or_default();
        let pid_inside = match depth {
            Some(depth) => pids.get(depth),
            None => pids.last(),
        };
        let pid_inside = *pid_inside.ok_or(io::ErrorKind::InvalidData)?;
        Ok(Some(Self { pid, pid_inside }))
    }

    pub(crate) fn mappings(&self) -> Result<Vec<Mapping>, Error> {
        File::open(format!("/proc/{}/smaps", self.pid))
            .and_then(smaps::read)
            .map_err(Error::task("see the mappings of", self.pid))
    }

    /// From now on the kernel kills the task if CRIU is killed.
    pub(crate) fn die_with_us(&self) -> Result<(), Error> {
        // This replaces CRIU's own options, which it no longer needs: it only detaches.
        let options = Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_EXITKILL;
        let set = || -> io::Result<()> {
            for thread in threads(self.pid)? {
                setoptions(Pid::from_raw(thread), options)?;
            }
            Ok(())
        };
        set().map_err(Error::task("tie to CRIU's life", self.pid))
    }

    /// Addresses that the kernel and CRIU use in the memory of each thread: its stack, and its
    /// thread-local storage with restartable sequences and robust futexes.
    pub(crate) fn addresses(&self) -> Result<Vec<u64>, Error> {
        let find = || -> io::Result<Vec<u64>> {
            let mut found = Vec::new();
            for thread in threads(self.pid)? {
                found.extend(thread_addresses(thread)?);
            }
            Ok(found)
        };
        find().map_err(Error::task("see the threads of", self.pid))
    }
}

/// The processes of the tree of `root` that we trace, in the order of their pids: what CRIU dumps,
/// without its zombies.
///
/// CRIU stops more than it dumps: every process in the container's freezer cgroup, also those that
/// `exec` started there (criu/seize.c, `seize_cgroup_tree`). It dumps those that descend from the
/// root (`collect_children`).
pub(crate) fn dumped(root: i32) -> io::Result<Vec<Task>> {
    // A process may be in a pid namespace of its own below the container's.
    let namespaces = Status::of(root)?.and_then(|status| status.namespace_pids());
    let depth = namespaces.map(|pids| pids.len().saturating_sub(1));
    traced_among(descendants(root, processes()?)?, depth)
}

/// All processes that we trace, in the order of their pids. Zombies are not traced.
pub(crate) fn traced() -> io::Result<Vec<Task>> {
    let mut pids = processes()?;
    pids.sort_unstable();
    traced_among(pids, None)
}

fn traced_among(
    pids: impl IntoIterator<Item = i32>,
    depth: Option<usize>,
) -> io::Result<Vec<Task>> {
    let tasks = pids.into_iter().map(|pid| Task::traced(pid, depth));
    tasks.filter_map(io::Result::transpose).collect()
}

/// Whether a process has not ended. One that cannot be looked at has not.
pub(crate) fn is_alive(pid: i32) -> bool {
    match Status::of(pid) {
        Ok(status) => {
            let state = status.and_then(|status| status.state());
            !matches!(state, None | Some(TaskState::Ended))
        }
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    /// A name is cut after 15 bytes, in the middle of a letter.
    #[test]
    fn a_task_with_a_name_of_any_bytes_is_found() {
        let script = "printf '\\xe8\\xae\\x80\\xe8\\xae' > /proc/$$/comm; echo up; read x";
        let mut shell = Command::new("bash")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(shell.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let pid = Pid::from_raw(i32::try_from(shell.id()).unwrap());
        // In a thread of its own, as TracerPid is that of the thread that traces.
        nix::sys::ptrace::seize(pid, Options::empty()).unwrap();
        let status = Status::of(pid.as_raw()).unwrap().unwrap();
        assert!(str::from_utf8(status.field("Name").unwrap()).is_err());
        assert!(status.tracer().is_some_and(|tracer| tracer > 0));
        assert!(is_alive(pid.as_raw()));
        assert!(traced().is_ok());
        shell.kill().unwrap();
        shell.wait().unwrap();
        assert!(!is_alive(pid.as_raw()));
    }
}
