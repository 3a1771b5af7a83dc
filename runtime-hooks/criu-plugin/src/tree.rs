//! The tasks that CRIU has stopped.

use std::fs;
use std::io::{self, BufReader};

use nix::sys::ptrace::{Options, setoptions};
use nix::unistd::Pid;
use stasis_remote_call::spots;

use crate::error::Error;
use crate::smaps::{self, Mapping};

/// A process that this one traces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Task {
    /// In our pid namespace.
    pub(crate) pid: i32,
    /// In its own, which is the one that a restore gives back.
    pub(crate) pid_inside: i32,
}

impl Task {
    pub(crate) fn mappings(&self) -> Result<Vec<Mapping>, Error> {
        let read = || {
            smaps::read(BufReader::new(fs::File::open(format!(
                "/proc/{}/smaps",
                self.pid
            ))?))
        };
        read().map_err(Error::task("see the mappings of", self.pid))
    }

    /// Should CRIU, and we with it, be killed from now on, the task is, too.
    pub(crate) fn die_with_us(&self) -> Result<(), Error> {
        // Those that CRIU may have set for itself have no use any more: it only lets go of the task.
        let options = Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_EXITKILL;
        let set = || -> io::Result<()> {
            for thread in self.threads()? {
                setoptions(Pid::from_raw(thread), options)?;
            }
            Ok(())
        };
        set().map_err(Error::task("tie to CRIU's life", self.pid))
    }

    fn threads(&self) -> io::Result<Vec<i32>> {
        let number = |entry: io::Result<fs::DirEntry>| {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.parse().ok());
            number.ok_or_else(|| io::ErrorKind::InvalidData.into())
        };
        fs::read_dir(format!("/proc/{}/task", self.pid))?
            .map(number)
            .collect()
    }

    /// Addresses near which the kernel and CRIU look into the memory of its threads: their stacks, and what the C library
    /// keeps for each (restartable sequences, robust futexes).
    pub(crate) fn spots(&self) -> Result<Vec<u64>, Error> {
        let find = || -> io::Result<Vec<u64>> {
            let mut found = Vec::new();
            for thread in self.threads()? {
                found.extend(spots(thread)?);
            }
            Ok(found)
        };
        find().map_err(Error::task("see the threads of", self.pid))
    }
}

/// All processes that we trace, in the order of their pids. Zombies are not traced.
pub(crate) fn traced() -> io::Result<Vec<Task>> {
    let mut tasks = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        // It may end meanwhile.
        let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else {
            continue;
        };
        if field(&status, "TracerPid") == Some(std::process::id().to_string().as_str())
            && let Some(pid_inside) = field(&status, "NSpid")
                .and_then(|pids| pids.split_whitespace().last()?.parse().ok())
        {
            tasks.push(Task { pid, pid_inside });
        }
    }
    tasks.sort_by_key(|task| task.pid);
    Ok(tasks)
}

/// Whether a process has not ended.
pub(crate) fn is_alive(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let state = field(&status, "State").and_then(|state| state.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = status.lines();
    lines.find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}
