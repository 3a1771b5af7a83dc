//! What keeps a process from answering the driver: something holds it, or one of its threads, still.

use std::fmt;
use std::fs;
use std::io;

use crate::process::gone_is_none;

/// Who holds a process still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// A stop signal (`SIGSTOP`, a Ctrl-Z).
    Signal {
        /// The process.
        pid: i32,
    },
    /// A debugger or tracer.
    Traced {
        /// The thread that it has stopped.
        thread: i32,
        /// The tracer; 0 if it is in another pid namespace.
        by: i32,
    },
    /// A cgroup above the container's is frozen, which is not ours to thaw.
    FrozenAbove,
}

impl Stop {
    /// Looks at every thread of a process: a debugger may hold a single one, and which of them answers
    /// the driver is the driver's affair. A process that has ended is not stopped.
    ///
    /// # Errors
    /// What reading `/proc` said.
    pub fn of(pid: i32) -> io::Result<Option<Self>> {
        let Some(threads) = gone_is_none(fs::read_dir(format!("/proc/{pid}/task")))? else {
            return Ok(None);
        };
        for thread in threads {
            let Some(thread) = gone_is_none(thread)? else {
                return Ok(None);
            };
            // `status` has the tracer, and costs several times what `stat` does.
            let stat = gone_is_none(fs::read_to_string(thread.path().join("stat")))?;
            if !stat.is_some_and(|stat| may_be_stopped(&stat)) {
                continue;
            }
            let status = gone_is_none(fs::read_to_string(thread.path().join("status")))?;
            let thread = thread.file_name().to_string_lossy().parse().unwrap_or(pid);
            if let Some(stop) = status.and_then(|status| read(pid, thread, &status)) {
                return Ok(Some(stop));
            }
        }
        Ok(None)
    }
}

/// The state letter follows the name, which may hold anything (proc_pid_stat(5)).
fn may_be_stopped(stat: &str) -> bool {
    stat.rsplit_once(") ")
        .is_none_or(|(_, rest)| rest.starts_with(['T', 't']))
}

/// The state letters of proc_pid_status(5).
fn read(pid: i32, thread: i32, status: &str) -> Option<Stop> {
    let field = |name: &str| {
        let mut lines = status.lines();
        lines.find_map(|line| Some(line.strip_prefix(name)?.trim_start()))
    };
    match field("State:")?.chars().next()? {
        'T' => Some(Stop::Signal { pid }),
        't' => Some(Stop::Traced {
            thread,
            by: field("TracerPid:")?.parse().ok()?,
        }),
        _ => None,
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal { pid } => {
                write!(
                    f,
                    "it is stopped by a signal (`kill -CONT {pid}` lets it go on)"
                )
            }
            Self::Traced { thread, by: 0 } => write!(
                f,
                "its thread {thread} is stopped by a debugger in another pid namespace"
            ),
            Self::Traced { thread, by } => write!(
                f,
                "its thread {thread} is stopped by process {by}, which traces it"
            ),
            Self::FrozenAbove => f.write_str("it is held by a frozen cgroup above the container's"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tracer_is_named() {
        let status = "Name:\tx\nState:\tt (tracing stop)\nTgid:\t7\nTracerPid:\t4711\n";
        assert_eq!(
            read(7, 8, status),
            Some(Stop::Traced {
                thread: 8,
                by: 4711
            })
        );
        let status = "Name:\tx\nState:\tS (sleeping)\nTracerPid:\t4711\n";
        assert_eq!(read(7, 8, status), None, "traced, and runs");
    }

    #[test]
    fn the_state_is_found_behind_any_name() {
        assert!(may_be_stopped("8 (x) S (y) T 1 8 8"));
        assert!(may_be_stopped("8 (x) t 1 8 8"));
        assert!(!may_be_stopped("8 (x) T (y) S 1 8 8"));
    }

    #[test]
    fn a_process_that_has_ended_is_not_stopped() {
        assert_eq!(Stop::of(i32::MAX).unwrap(), None);
    }
}
