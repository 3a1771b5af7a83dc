//! Taking hold of a process, and whether it can answer the driver: a call about one that stands still
//! would hang (measured on driver 580.159).

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::Error;
use crate::process::{ProcessRef, gone_is_none};

/// What holds a process still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    /// A stop signal.
    Signal,
    /// A tracer, and the thread that would answer.
    Tracer { thread: i32 },
    /// A frozen cgroup.
    Freezer,
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal => f.write_str("is stopped by a signal (continue it with kill -CONT)"),
            Self::Tracer { thread } => {
                write!(f, "has its restore thread {thread} stopped by a tracer")
            }
            Self::Freezer => f.write_str("is in a frozen cgroup (resume its container)"),
        }
    }
}

/// Takes hold of the process that `pid` is, or is a thread of: CRIU's plugin asks for the state of the
/// restore thread.
pub(crate) fn open(pid: i32) -> Result<ProcessRef, Error> {
    let look = |source| Error::Look { pid, source };
    let status = gone_is_none(fs::read_to_string(format!("/proc/{pid}/status"))).map_err(look)?;
    let process = status.as_deref().and_then(|status| {
        let mut lines = status.lines();
        lines.find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok())
    });
    let process = process.ok_or(Error::NoProcess(pid))?;
    let opened = ProcessRef::open(process).map_err(look)?;
    opened.ok_or(Error::NoProcess(pid))
}

/// What keeps a process from answering the driver, if anything does. `restore_thread` asks the driver,
/// which finds that out without the process's help: CRIU's plugin does it with every thread stopped, and
/// lets the restore thread alone go on for what follows.
pub(crate) fn held(
    process: &ProcessRef,
    restore_thread: impl FnOnce() -> Option<i32>,
) -> Result<Option<Held>, Error> {
    let pid = process.pid();
    let look = |source| Error::Look { pid, source };
    if is_frozen(pid).map_err(look)? {
        return Ok(Some(Held::Freezer));
    }
    match activity(pid, pid).map_err(look)? {
        Some('T') => Ok(Some(Held::Signal)),
        Some('t') => {
            let thread = restore_thread().unwrap_or(pid);
            let stands = matches!(activity(pid, thread).map_err(look)?, Some('T' | 't'));
            Ok(stands.then_some(Held::Tracer { thread }))
        }
        _ => Ok(None),
    }
}

/// The state letter of a thread; `None` if it has ended.
fn activity(pid: i32, thread: i32) -> io::Result<Option<char>> {
    let path = format!("/proc/{pid}/task/{thread}/stat");
    let stat = gone_is_none(fs::read_to_string(path))?;
    // The name before it may hold anything; the last ')' ends it (proc_pid_stat(5)).
    Ok(stat.and_then(|stat| stat.rsplit_once(") ")?.1.chars().next()))
}

/// Whether the process's cgroup or one above it is frozen.
fn is_frozen(pid: i32) -> io::Result<bool> {
    let text = gone_is_none(fs::read_to_string(format!("/proc/{pid}/cgroup")))?;
    Ok(text.is_some_and(|text| freezers(&text).any(|file| says_frozen(&file))))
}

/// The files that tell it for the cgroups of a `/proc/PID/cgroup`, on hosts with version 1, 2, or both.
fn freezers(text: &str) -> impl Iterator<Item = PathBuf> {
    text.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next(), fields.next());
        let path = path.unwrap_or_default().trim_start_matches('/');
        let below = |mount: &str, file: &str| Path::new(mount).join(path).join(file);
        match controllers {
            Some("") => vec![
                below("/sys/fs/cgroup", "cgroup.events"),
                below("/sys/fs/cgroup/unified", "cgroup.events"),
            ],
            Some(names) if names.split(',').any(|name| name == "freezer") => {
                vec![below("/sys/fs/cgroup/freezer", "freezer.state")]
            }
            _ => Vec::new(),
        }
    })
}

fn says_frozen(file: &Path) -> bool {
    // One that is not there belongs to a mount that this host does not have.
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines()
        .any(|line| matches!(line.trim(), "frozen 1" | "FROZEN" | "FREEZING"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stands_for_its_process() {
        let own = i32::try_from(std::process::id()).unwrap();
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let thread = nix::unistd::gettid().as_raw();
                send.send((thread, open(thread).map(|process| process.pid())))
                    .unwrap();
            });
            let (thread, found) = receive.recv().unwrap();
            assert_ne!(thread, own);
            assert_eq!(found.unwrap(), own);
        });
        assert!(matches!(open(i32::MAX), Err(Error::NoProcess(_))));
    }

    #[test]
    fn the_freezers_of_both_versions_are_asked() {
        let text = "12:freezer:/a/b\n3:cpu,cpuacct:/x\n0::/c\n";
        let files: Vec<_> = freezers(text).collect();
        let expected = [
            "/sys/fs/cgroup/freezer/a/b/freezer.state",
            "/sys/fs/cgroup/c/cgroup.events",
            "/sys/fs/cgroup/unified/c/cgroup.events",
        ];
        assert_eq!(files, expected.map(PathBuf::from));
    }

    #[test]
    fn a_stopped_process_is_held_and_the_driver_not_asked() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let process = open(i32::try_from(child.id()).unwrap()).unwrap();
        let never = || panic!("a process that runs is not asked about");
        assert_eq!(held(&process, never).unwrap(), None);
        let pid = nix::unistd::Pid::from_raw(process.pid());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
        while activity(process.pid(), process.pid()).unwrap() != Some('T') {
            std::thread::yield_now();
        }
        assert_eq!(held(&process, never).unwrap(), Some(Held::Signal));
        process.kill().unwrap();
        child.wait().unwrap();
    }
}
