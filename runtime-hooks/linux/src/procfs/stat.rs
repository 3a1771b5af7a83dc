//! `/proc/PID/stat`.

use std::io;
use std::path::{Path, PathBuf};

use super::{malformed, number, read, words};

/// 52 numbers and a name of at most 64 bytes (proc_pid_stat(5)).
const MAX_BYTES: u64 = 4096;
/// `PF_EXITING` and `PF_SIGNALED` of the kernel's include/linux/sched.h.
const DYING: u64 = 0x4 | 0x400;

/// The fields of `/proc/PID/stat` that stasis uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// The command name, as the process has set it.
    pub name: Vec<u8>,
    /// The state of the thread.
    pub state: TaskState,
    /// The pid of the parent process; 0 if it is in a pid namespace above ours.
    pub parent: i32,
    /// The session; 0 if its first process is in a pid namespace above ours.
    pub session: i32,
    /// A signal is ending it, or it ends by itself: the kernel still takes it apart.
    pub is_dying: bool,
    /// CPU time of the process and its reaped children, in clock ticks.
    pub cpu_ticks: u64,
    /// When it was started, in clock ticks since boot.
    pub start_time: u64,
}

/// The state letter of a thread (proc_pid_stat(5)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskState {
    /// Running or sleeping.
    Live,
    /// `T`: held by a stop signal.
    Stopped,
    /// `t`: held by a tracer.
    Traced,
    /// `Z`, `X`: ended.
    Ended,
}

impl TaskState {
    /// The state that a letter stands for.
    pub(super) fn of_letter(letter: u8) -> Self {
        match letter {
            b'T' => Self::Stopped,
            b't' => Self::Traced,
            b'Z' | b'X' | b'x' => Self::Ended,
            _ => Self::Live,
        }
    }
}

impl Stat {
    /// Reads the stat of a process (its first thread); `None` if it has ended and was reaped.
    pub fn of(pid: i32) -> io::Result<Option<Self>> {
        Self::read(&PathBuf::from(format!("/proc/{pid}/stat")))
    }

    /// Reads the stat of one thread of a process; `None` if it has ended.
    pub fn of_thread(pid: i32, thread: i32) -> io::Result<Option<Self>> {
        Self::read(&PathBuf::from(format!("/proc/{pid}/task/{thread}/stat")))
    }

    fn read(path: &Path) -> io::Result<Option<Self>> {
        let text = read(path, MAX_BYTES)?;
        text.map(|text| Self::parse(&text).ok_or_else(|| malformed(path)))
            .transpose()
    }

    /// The name may hold spaces, parentheses and line feeds: the last ')' ends it.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let begin = text.iter().position(|byte| *byte == b'(')?;
        let end = text.iter().rposition(|byte| *byte == b')')?;
        let name = text.get(begin + 1..end)?.to_vec();
        let mut fields = words(text.get(end + 1..)?);
        let state = TaskState::of_letter(*fields.next()?.first()?);
        // The state is field 3, the parent field 4, the session field 6, the flags field 9,
        // utime, stime, cutime and cstime fields 14 to 17, the start time field 22.
        let parent = number(fields.next()?)?;
        let session = number(fields.nth(1)?)?;
        let flags: u64 = number(fields.nth(2)?)?;
        let mut cpu_ticks: u64 = number(fields.nth(4)?)?;
        for _ in 15..=17 {
            cpu_ticks = cpu_ticks.saturating_add(number(fields.next()?)?);
        }
        let start_time = number(fields.nth(4)?)?;
        Some(Self {
            name,
            state,
            parent,
            session,
            is_dying: flags & DYING != 0,
            cpu_ticks,
            start_time,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const TAIL: &str = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20\n";

    #[test]
    fn a_name_may_hold_anything() {
        for name in [&b"a) R (b"[..], b"mod\xe8le \xe8\xae", b"x\n(y)", b""] {
            let text = [b"7 (", name, b") ", TAIL.as_bytes()].concat();
            let stat = Stat::parse(&text).unwrap();
            assert_eq!(stat.name, name);
            assert_eq!(stat.state, TaskState::Live);
            assert_eq!((stat.parent, stat.session), (1, 3));
            assert_eq!(stat.start_time, 4711);
            assert_eq!(stat.cpu_ticks, 11 + 12 + 13 + 14);
            assert!(stat.is_dying, "flags 6");
        }
    }

    #[test]
    fn who_runs_is_not_dying_and_who_has_ended_is() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let stat = || Stat::of(pid).unwrap().unwrap();
        assert!(!stat().is_dying);
        child.kill().unwrap();
        while stat().state != TaskState::Ended {
            std::thread::yield_now();
        }
        assert!(stat().is_dying);
        child.wait().unwrap();
    }

    #[test]
    fn what_is_cut_off_is_none() {
        for text in ["", "7 (x", "7 )x( S", "7 (x) S 1 2", "7 (x)"] {
            assert_eq!(Stat::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn the_letters_of_threads_that_stand() {
        let states = [b'R', b'D', b'T', b't', b'Z', b'X'].map(TaskState::of_letter);
        use TaskState::{Ended, Live, Stopped, Traced};
        assert_eq!(states, [Live, Live, Stopped, Traced, Ended, Ended]);
    }

    #[test]
    fn there_is_none_of_a_process_that_does_not_exist() {
        assert_eq!(Stat::of(i32::MAX).unwrap(), None);
        assert_eq!(Stat::of_thread(i32::MAX, 1).unwrap(), None);
    }
}
