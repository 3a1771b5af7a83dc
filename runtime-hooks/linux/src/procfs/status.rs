//! `/proc/PID/status`.

use std::io;
use std::path::{Path, PathBuf};

use rustix::thread::CpuSet;

use super::{TaskState, hexadecimal, number, read, words};

/// A process may be in 65536 groups (NGROUPS_MAX), each a number of up to ten digits in `Groups`.
const MAX_BYTES: u64 = 1 << 20;
/// SIGKILL in a set of signals.
const KILL: u64 = 1 << 8;

/// `/proc/PID/status`: a line for each field. The kernel escapes line feeds in the name.
#[derive(Debug, Clone)]
pub struct Status {
    text: Vec<u8>,
}

impl Status {
    /// Reads the status of a process; `None` if it has ended and was reaped.
    pub fn of(pid: i32) -> io::Result<Option<Self>> {
        Self::read(&PathBuf::from(format!("/proc/{pid}/status")))
    }

    /// Reads the status of one thread of a process; `None` if it has ended.
    pub fn of_thread(pid: i32, thread: i32) -> io::Result<Option<Self>> {
        Self::read(&PathBuf::from(format!("/proc/{pid}/task/{thread}/status")))
    }

    fn read(path: &Path) -> io::Result<Option<Self>> {
        Ok(read(path, MAX_BYTES)?.map(Self::from_text))
    }

    /// Parses the contents of such a file.
    #[must_use]
    pub fn from_text(text: Vec<u8>) -> Self {
        Self { text }
    }

    /// The value of a field, without the spaces around it.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        let mut lines = self.text.split(|byte| *byte == b'\n');
        lines.find_map(|line| {
            let value = line.strip_prefix(name.as_bytes())?.strip_prefix(b":")?;
            Some(value.trim_ascii())
        })
    }

    /// Returns the state of the thread.
    pub fn state(&self) -> Option<TaskState> {
        let letter = self.field("State")?.first()?;
        Some(TaskState::of_letter(*letter))
    }

    /// The pid of the process that the thread belongs to.
    pub fn process(&self) -> Option<i32> {
        number(self.field("Tgid")?)
    }

    /// The pid of the thread's tracer; 0 without one, and for one in another pid namespace.
    pub fn tracer(&self) -> Option<i32> {
        number(self.field("TracerPid")?)
    }

    /// Returns whether SIGKILL is pending for the thread: the kernel sends it to each thread of a
    /// process that ends (kernel/signal.c, `zap_other_threads`), and a thread that has yet to be
    /// scheduled has no flag that it is dying. A thread takes it from its own signals before it has
    /// that flag; a SIGKILL among the signals of the process stays (`get_signal`).
    pub(crate) fn is_killed(&self) -> bool {
        let pending = ["SigPnd", "ShdPnd"].map(|name| self.field(name).and_then(hexadecimal));
        let mut pending = pending.into_iter().flatten();
        pending.any(|pending| pending & KILL != 0)
    }

    /// Returns the number of CPUs that the thread may run on.
    pub fn allowed_cpus(&self) -> Option<u64> {
        self.allowed_cpu_list().map(|cpus| cpus.len() as u64)
    }

    pub(crate) fn allowed_cpu_list(&self) -> Option<Vec<usize>> {
        let list = std::str::from_utf8(self.field("Cpus_allowed_list")?).ok()?;
        cpu_list(list).filter(|cpus| !cpus.is_empty())
    }

    /// The pid of the process in each pid namespace that it is in, from ours inwards.
    pub fn namespace_pids(&self) -> Option<Vec<i32>> {
        words(self.field("NSpid")?).map(number).collect()
    }
}

/// A list like "0-3,8,10-11" (cpuset(7), "List format").
pub(crate) fn cpu_list(list: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in list.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse().ok()?, last.parse::<usize>().ok()?);
        cpus.extend(first..=last.min(CpuSet::MAX_CPU));
    }
    Some(cpus)
}

/// Parses such a list into a set; `None` if it is empty, or has more CPUs than a set can hold.
pub(crate) fn cpu_set(list: &str) -> Option<CpuSet> {
    let mut set = CpuSet::new();
    // A list may come from an image: one that names CPUs again and again would take long.
    for part in list.split(',').take(CpuSet::MAX_CPU) {
        for cpu in cpu_list(part)? {
            if cpu >= CpuSet::MAX_CPU {
                return None;
            }
            set.set(cpu);
        }
    }
    (set.count() > 0).then_some(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_a_name_of_any_bytes() {
        let text = b"Name:\t\xe8\xae\nState:\tt (tracing stop)\nTgid:\t7\nTracerPid:\t4711\n\
            NSpid:\t4711\t12\t1\n";
        let status = Status::from_text(text.to_vec());
        assert_eq!(status.field("Name"), Some(&b"\xe8\xae"[..]));
        assert_eq!(status.state(), Some(TaskState::Traced));
        assert_eq!((status.process(), status.tracer()), (Some(7), Some(4711)));
        assert_eq!(status.namespace_pids(), Some(vec![4711, 12, 1]));
        assert_eq!(status.field("Tg"), None);
    }

    #[test]
    fn cpus_are_counted() {
        let count = |list: &str| {
            let text = format!("Cpus_allowed_list:\t{list}\n").into_bytes();
            Status::from_text(text).allowed_cpus()
        };
        assert_eq!(count("0"), Some(1));
        assert_eq!(count("0-3,8,10-11"), Some(7));
        assert_eq!(count("3-0"), None);
        assert_eq!(count(""), None);
    }

    #[test]
    fn a_set_has_the_cpus_of_a_list_that_fit() {
        let set = cpu_set("0-2,8").unwrap();
        assert_eq!(set.count(), 4);
        assert!(set.is_set(8) && !set.is_set(3));
        for list in ["", "x", "1024", "0-9999"] {
            assert_eq!(cpu_set(list), None, "{list}");
        }
        assert_eq!(cpu_set(&"0-1023,".repeat(1 << 20)).unwrap().count(), 1024);
    }

    #[test]
    fn our_own_is_read() {
        let own = i32::try_from(std::process::id()).unwrap();
        let status = Status::of(own).unwrap().unwrap();
        assert_eq!(status.process(), Some(own));
        assert!(Status::of(i32::MAX).unwrap().is_none());
    }
}
