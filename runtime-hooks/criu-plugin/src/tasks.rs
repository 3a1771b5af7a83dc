//! The tasks that CRIU has stopped.

use std::io;

use stasis_linux::procfs::{Status, processes};

/// A process that this one traces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Task {
    /// In our pid namespace.
    pub(crate) pid: i32,
    /// In the container's namespace.
    pub(crate) pid_inside: i32,
}

impl Task {
    /// This process, if we trace it. It may have ended.
    fn traced(pid: i32) -> io::Result<Option<Self>> {
        let Some(status) = Status::of(pid)? else {
            return Ok(None);
        };
        if status.tracer() != i32::try_from(std::process::id()).ok() {
            return Ok(None);
        }
        let pids = status.namespace_pids().unwrap_or_default();
        let pid_inside = *pids.last().ok_or(io::ErrorKind::InvalidData)?;
        Ok(Some(Self { pid, pid_inside }))
    }
}

/// All processes that we trace, in the order of their pids. Zombies are not traced.
pub(crate) fn traced() -> io::Result<Vec<Task>> {
    let mut pids = processes()?;
    pids.sort_unstable();
    let tasks = pids.into_iter().map(Task::traced);
    tasks.filter_map(io::Result::transpose).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use nix::sys::ptrace::{Options, seize};
    use nix::unistd::Pid;

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
        seize(pid, Options::empty()).unwrap();
        let status = Status::of(pid.as_raw()).unwrap().unwrap();
        assert!(str::from_utf8(status.field("Name").unwrap()).is_err());
        assert!(status.tracer().is_some_and(|tracer| tracer > 0));
        assert!(traced().is_ok());
        shell.kill().unwrap();
        shell.wait().unwrap();
    }
}
