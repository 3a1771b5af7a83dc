//! One process of a container, named so that no other process can be taken for it.
//!
//! A pid alone may be reused between two looks. [`ProcessRef`] holds a pidfd from the first sight
//! and remembers the start time, so every later act can ask "is it still the same one".

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process that is held by pidfd.
#[derive(Debug)]
pub struct ProcessRef {
    pid: i32,
    start_time: u64,
    namespace_pids: Vec<i32>,
    name: String,
    pidfd: OwnedFd,
}

/// What a process was doing when looked at (the state letter of `/proc/PID/stat`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// Runs, sleeps or is stopped (`stop.rs`).
    Live,
    /// Ended and not yet reaped.
    Zombie,
}

impl ProcessRef {
    /// Takes hold of a process. `None` if there is no such process, or only its zombie.
    ///
    /// # Errors
    /// What the kernel said, apart from "no such process".
    pub fn open(pid: i32) -> io::Result<Option<Self>> {
        let Some(raw) = Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw) else {
            return Ok(None);
        };
        let pidfd = match pidfd_open(raw, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            // EINVAL: a thread that leads no process (kernels before 6.9 say so for a task that
            // is just being reaped).
            Err(Errno::SRCH | Errno::INVAL) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let Some(stat) = gone_is_none(fs::read_to_string(format!("/proc/{pid}/stat")))? else {
            return Ok(None);
        };
        let Some(status) = gone_is_none(fs::read_to_string(format!("/proc/{pid}/status")))? else {
            return Ok(None);
        };
        let stat = Stat::parse(&stat).ok_or_else(|| unreadable(pid, "stat"))?;
        let process = Self {
            pid,
            start_time: stat.start_time,
            namespace_pids: namespace_pids(&status).ok_or_else(|| unreadable(pid, "status"))?,
            name: stat.name,
            pidfd,
        };
        // Only now: the files read above belonged to the process of the pidfd if that still lives.
        let alive = process.is_alive()? && stat.activity != Activity::Zombie;
        Ok(alive.then_some(process))
    }

    /// The pid as this process sees it.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Start time in clock ticks since boot: with the pid, the identity of the process.
    #[must_use]
    pub fn start_time(&self) -> u64 {
        self.start_time
    }

    /// The command name (`comm`), for messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The parent of a process; `None` if the process has ended or its parent is not to be seen.
    ///
    /// # Errors
    /// What reading `/proc` said.
    pub fn parent_of(pid: i32) -> io::Result<Option<i32>> {
        let Some(stat) = gone_is_none(fs::read_to_string(format!("/proc/{pid}/stat")))? else {
            return Ok(None);
        };
        let stat = Stat::parse(&stat).ok_or_else(|| unreadable(pid, "stat"))?;
        Ok(Some(stat.parent).filter(|parent| *parent > 0))
    }

    /// The pid in the pid namespace `depth` levels below ours (0 is ours); for a process of a
    /// container, `depth` is that of the container's init. It survives checkpoint and restore.
    #[must_use]
    pub fn pid_at_depth(&self, depth: usize) -> Option<i32> {
        self.namespace_pids.get(depth).copied()
    }

    /// How many pid namespaces below ours the process lives.
    #[must_use]
    pub fn namespace_depth(&self) -> usize {
        self.namespace_pids.len().saturating_sub(1)
    }

    /// Whether the process has not ended.
    ///
    /// # Errors
    /// What poll(2) said.
    pub fn is_alive(&self) -> io::Result<bool> {
        self.outlives(Duration::ZERO)
    }

    /// Whether the process has not ended when `time` has passed.
    ///
    /// # Errors
    /// What poll(2) said.
    pub fn outlives(&self, time: Duration) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let time = Timespec::try_from(time).map_err(io::Error::other)?;
        // A pidfd becomes readable when its process ends (pidfd_open(2)).
        Ok(poll(&mut fds, Some(&time))? == 0)
    }

    /// Whether the process is known to have ended.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self.is_alive(), Ok(false))
    }

    /// What the process is doing now; [`Activity::Zombie`] if it is gone.
    ///
    /// # Errors
    /// What reading `/proc` said.
    pub fn activity(&self) -> io::Result<Activity> {
        match gone_is_none(fs::read_to_string(format!("/proc/{}/stat", self.pid)))? {
            Some(stat) => Stat::parse(&stat)
                .map(|stat| stat.activity)
                .ok_or_else(|| unreadable(self.pid, "stat")),
            None => Ok(Activity::Zombie),
        }
    }

    /// Whether the process can have GPU state, told without asking the driver: it has libcuda loaded
    /// (there is no other way to use CUDA, and it stays loaded while the GPU state is in host
    /// memory), or an NVIDIA device open.
    ///
    /// # Errors
    /// What reading `/proc` said.
    pub fn may_use_cuda(&self) -> io::Result<bool> {
        Ok(self.maps("/libcuda.so")? || self.has_nvidia_device()?)
    }

    /// Whether the process has a descriptor or a mapping of an NVIDIA device.
    ///
    /// # Errors
    /// What reading `/proc` said.
    pub fn has_nvidia_device(&self) -> io::Result<bool> {
        Ok(self.maps(" /dev/nvidia")? || !self.open_nvidia_devices()?.is_empty())
    }

    /// The paths of the NVIDIA devices that the process has open, as it sees them.
    ///
    /// # Errors
    /// What reading `/proc` said.
    pub fn open_nvidia_devices(&self) -> io::Result<BTreeSet<String>> {
        let Some(entries) = gone_is_none(fs::read_dir(format!("/proc/{}/fd", self.pid)))? else {
            return Ok(BTreeSet::new());
        };
        let targets = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        Ok(targets
            .filter_map(|target| target.into_os_string().into_string().ok())
            .filter(|target| target.starts_with("/dev/nvidia"))
            .map(|target| target.trim_end_matches(" (deleted)").to_owned())
            .collect())
    }

    /// Whether a mapping's line in `/proc/PID/maps` has this text.
    fn maps(&self, text: &str) -> io::Result<bool> {
        let maps = gone_is_none(fs::read_to_string(format!("/proc/{}/maps", self.pid)))?;
        Ok(maps.is_some_and(|maps| maps.contains(text)))
    }

    /// Ends the process.
    ///
    /// # Errors
    /// What the kernel said; a process that has ended already is no error.
    pub fn kill(&self) -> io::Result<()> {
        match pidfd_send_signal(&self.pidfd, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl std::fmt::Display for ProcessRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} ({})", self.pid, self.name)
    }
}

/// The fields of `/proc/PID/stat` that matter here.
struct Stat {
    name: String,
    activity: Activity,
    parent: i32,
    start_time: u64,
}

impl Stat {
    /// The name may hold spaces and parentheses: the last ')' ends it (proc_pid_stat(5)).
    fn parse(text: &str) -> Option<Self> {
        let (head, tail) = text.rsplit_once(") ")?;
        let (_, name) = head.split_once('(')?;
        let mut fields = tail.split_ascii_whitespace();
        let activity = match fields.next()? {
            "Z" | "X" | "x" => Activity::Zombie,
            _ => Activity::Live,
        };
        // The state is field 3, ppid field 4, starttime field 22.
        let parent = fields.next()?.parse().ok()?;
        let start_time = fields.nth(17)?.parse().ok()?;
        Some(Self {
            name: name.to_owned(),
            activity,
            parent,
            start_time,
        })
    }
}

fn namespace_pids(status: &str) -> Option<Vec<i32>> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace()
        .map(|pid| pid.parse().ok())
        .collect()
}

/// `/proc/PID` answers ENOENT before, ESRCH after a process was found and then reaped.
pub(crate) fn gone_is_none<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(None),
        Err(error) => Err(error),
    }
}

fn unreadable(pid: i32, file: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("cannot make sense of /proc/{pid}/{file}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn sleeper() -> std::process::Child {
        Command::new("sleep")
            .arg("60")
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn own_pid() -> i32 {
        i32::try_from(std::process::id()).unwrap()
    }

    #[test]
    fn stat_survives_a_hostile_name() {
        let tail = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        let stat = Stat::parse(&format!("7 (a) R (b) {tail}")).unwrap();
        assert_eq!(stat.name, "a) R (b");
        assert_eq!(stat.activity, Activity::Live);
        assert_eq!(stat.parent, 1);
        assert_eq!(stat.start_time, 4711);
    }

    #[test]
    fn namespace_pids_go_from_ours_inwards() {
        assert_eq!(
            namespace_pids("Name:\tx\nNSpid:\t4711\t12\t1\n"),
            Some(vec![4711, 12, 1])
        );
    }

    #[test]
    fn a_process_is_held_until_it_ends() {
        let mut child = sleeper();
        let process = ProcessRef::open(i32::try_from(child.id()).unwrap())
            .unwrap()
            .unwrap();
        assert_eq!(process.name(), "sleep");
        assert!(process.is_alive().unwrap());
        assert_eq!(process.activity().unwrap(), Activity::Live);
        process.kill().unwrap();
        child.wait().unwrap();
        assert!(!process.is_alive().unwrap());
        assert_eq!(process.activity().unwrap(), Activity::Zombie);
        process.kill().unwrap();
        assert!(ProcessRef::open(process.pid()).unwrap().is_none());
    }

    #[test]
    fn this_process_uses_no_gpu() {
        let process = ProcessRef::open(own_pid()).unwrap().unwrap();
        assert!(!process.may_use_cuda().unwrap());
        assert!(process.maps("/libc.so").unwrap());
        assert_eq!(process.pid_at_depth(0), Some(own_pid()));
    }

    #[test]
    fn there_is_no_process_zero() {
        assert!(ProcessRef::open(0).unwrap().is_none());
        assert!(ProcessRef::open(-1).unwrap().is_none());
    }
}
