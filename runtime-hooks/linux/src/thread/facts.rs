//! The CPUs of a thread, and its share where there is too little for all.
//!
//! CRIU 4 restores neither sched_setaffinity(2), ioprio_set(2) nor the timer slack: its tasks
//! inherit those of CRIU's starter. CRIU restores `oom_score_adj` unless it is 0
//! (criu/cr-restore.c, `prepare_proc_misc`), and engines' shims have another.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};

use super::{Thread, io_priority};
use crate::cgroup::cpus_of;
use crate::procfs::{Status, cpu_set, number, read};

/// Longer than any number.
const MOST_DIGITS: u64 = 64;
/// The CPUs of the machine.
const ONLINE: &str = "/sys/devices/system/cpu/online";
/// The timer slack of Linux's first process, in nanoseconds (init/init_task.c).
const USUAL_TIMER_SLACK: u64 = 50_000;
/// The timer slack of a thread of a real-time policy (kernel/sched/syscalls.c, `set_user_nice` and
/// such): it comes and goes with the policy, which CRIU keeps.
const NO_TIMER_SLACK: u64 = 0;

/// The attributes of a thread that differ from the usual ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// The CPUs that the thread may run on, as the kernel lists them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cpus: Option<String>,
    /// The class and level of its I/O, as ioprio_set(2) takes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    io_priority: Option<u16>,
    /// In nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timer_slack: Option<u64>,
    /// Of the process; recorded with its first thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    oom_score_adj: Option<i16>,
}

/// An attribute of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fact {
    /// The CPUs that the thread may run on.
    Cpus,
    /// The priority of its I/O.
    IoPriority,
    /// The permitted delay of its timers.
    TimerSlack,
    /// The rank of its process when the kernel ends one for want of memory.
    OomScore,
}

/// The attributes that the threads of a container have by default.
#[derive(Debug)]
pub struct Usual {
    /// The CPUs of the container.
    cpus: Option<CpuSet>,
}

impl Usual {
    /// Returns the defaults of the processes in the cgroup of `process`.
    #[must_use]
    pub fn of(process: i32) -> Self {
        // Without an answer from the cgroup, no CPU is withheld from the container.
        let all = || fs::read_to_string(ONLINE).ok();
        let cpus = cpus_of(process).ok().flatten().or_else(all);
        let cpus = cpus.and_then(|list| cpu_set(list.trim()));
        Self { cpus }
    }

    /// Returns whether the list has all CPUs of the container; it may also have absent ones.
    fn has(&self, cpus: &str) -> bool {
        let Some((all, found)) = self.cpus.as_ref().zip(cpu_set(cpus)) else {
            return false;
        };
        has_all(&found, all)
    }
}

impl Facts {
    /// Returns whether all attributes are the usual ones.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Reads the attributes of a thread; none if it has ended.
    pub fn of(thread: Thread, usual: &Usual) -> io::Result<Self> {
        let timer_slack = timer_slack(thread)?;
        Ok(Self {
            cpus: cpus(thread)?.filter(|cpus| !usual.has(cpus)),
            io_priority: io_priority::get(thread.id).ok().flatten(),
            timer_slack: timer_slack
                .filter(|slack| ![USUAL_TIMER_SLACK, NO_TIMER_SLACK].contains(slack)),
            oom_score_adj: match thread.is_first() {
                true => oom_score_adj(thread)?.filter(|value| *value != 0),
                false => None,
            },
        })
    }

    /// Gives these attributes to a thread, and the usual ones for the rest. Returns those that it
    /// still lacks: the kernel allows no CPUs but those of this machine and of the cgroup.
    pub fn give(&self, thread: Thread) -> Vec<Fact> {
        let given = [
            (Fact::Cpus, self.give_cpus(thread)),
            (Fact::IoPriority, self.give_io_priority(thread)),
            (Fact::TimerSlack, self.give_timer_slack(thread)),
            (Fact::OomScore, self.give_oom_score(thread)),
        ];
        let lacks = given.into_iter().filter(|(_, given)| !given);
        lacks.map(|(fact, _)| fact).collect()
    }

    fn give_cpus(&self, thread: Thread) -> bool {
        let Some(wanted) = self.cpus.as_deref().map_or(Some(all_cpus()), cpu_set) else {
            return false;
        };
        let id = Pid::from_raw(thread.id);
        let is_set = sched_setaffinity(id, &wanted).is_ok();
        let found = || cpu_set(&cpus(thread).ok()??);
        is_set && (self.cpus.is_none() || found().is_some_and(|found| has_all(&found, &wanted)))
    }

    fn give_io_priority(&self, thread: Thread) -> bool {
        let is_there = || io_priority::get(thread.id).is_ok_and(|it| it == self.io_priority);
        is_there() || (io_priority::set(thread.id, self.io_priority).is_ok() && is_there())
    }

    fn give_timer_slack(&self, thread: Thread) -> bool {
        let wanted = self.timer_slack.unwrap_or(USUAL_TIMER_SLACK);
        let is_there = || {
            let found = timer_slack(thread).ok().flatten();
            found.is_some_and(|it| [wanted, NO_TIMER_SLACK].contains(&it))
        };
        is_there() || (write(&timer_slack_file(thread), wanted).is_ok() && is_there())
    }

    fn give_oom_score(&self, thread: Thread) -> bool {
        let wanted = self.oom_score_adj.unwrap_or_default();
        let is_there = || oom_score_adj(thread).is_ok_and(|it| it == Some(wanted));
        !thread.is_first()
            || is_there()
            || (write(&oom_score_file(thread), wanted).is_ok() && is_there())
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpus => "the CPUs to run on (sched_setaffinity)",
            Self::IoPriority => "the I/O priority (ioprio_set)",
            Self::TimerSlack => "the timer slack",
            Self::OomScore => "the oom_score_adj",
        })
    }
}

fn cpus(thread: Thread) -> io::Result<Option<String>> {
    let status = Status::of_thread(thread.process, thread.id)?;
    let list = status.and_then(|status| Some(status.field("Cpus_allowed_list")?.to_vec()));
    Ok(list.and_then(|list| String::from_utf8(list).ok()))
}

/// A thread also has a directory by its own number, though it is not listed: a thread has this file
/// only there (fs/proc/base.c, `tgid_base_stuff`).
fn timer_slack_file(thread: Thread) -> String {
    format!("/proc/{}/timerslack_ns", thread.id)
}

fn timer_slack(thread: Thread) -> io::Result<Option<u64>> {
    value(&timer_slack_file(thread))
}

fn oom_score_file(thread: Thread) -> String {
    format!("/proc/{}/oom_score_adj", thread.process)
}

fn oom_score_adj(thread: Thread) -> io::Result<Option<i16>> {
    value(&oom_score_file(thread))
}

fn value<T: std::str::FromStr>(path: &str) -> io::Result<Option<T>> {
    let text = read(Path::new(path), MOST_DIGITS)?;
    Ok(text.and_then(|text| number(text.trim_ascii())))
}

fn write(path: &str, value: impl fmt::Display) -> io::Result<()> {
    fs::write(path, value.to_string())
}

fn all_cpus() -> CpuSet {
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
    all
}

fn has_all(found: &CpuSet, wanted: &CpuSet) -> bool {
    (0..CpuSet::MAX_CPU).all(|cpu| found.is_set(cpu) || !wanted.is_set(cpu))
}

#[cfg(test)]
mod tests {
    use rustix::thread::gettid;

    use super::*;

    fn this() -> Thread {
        let id = gettid().as_raw_nonzero().get();
        let process = std::process::id().cast_signed();
        Thread {
            process,
            id,
            inside: id,
        }
    }

    /// On a thread of its own, which ends with what it was given.
    fn on_a_thread(work: impl FnOnce(Thread) + Send + 'static) {
        std::thread::spawn(|| work(this())).join().unwrap();
    }

    #[test]
    fn what_a_thread_is_given_is_found() {
        on_a_thread(|thread| {
            let usual = Usual::of(thread.process);
            let cpus = cpus(thread).unwrap().unwrap();
            let last = cpus.rsplit([',', '-']).next().unwrap();
            let wanted = Facts {
                cpus: Some(last.to_owned()).filter(|_| last != cpus),
                io_priority: Some((2 << 13) | 7),
                timer_slack: Some(123_456),
                oom_score_adj: None,
            };
            assert_eq!(wanted.give(thread), []);
            assert_eq!(Facts::of(thread, &usual).unwrap(), wanted);
            assert_eq!(Facts::default().give(thread), []);
            assert!(Facts::of(thread, &usual).unwrap().is_empty());
        });
    }

    #[test]
    fn what_this_machine_does_not_have_is_told() {
        on_a_thread(|thread| {
            for cpus in ["1023", "0-1023", "many", "9999"] {
                let wanted = Facts {
                    cpus: Some(cpus.to_owned()),
                    ..Facts::default()
                };
                assert_eq!(wanted.give(thread), [Fact::Cpus], "{cpus}");
            }
            let wanted = Facts {
                io_priority: Some(u16::MAX),
                ..Facts::default()
            };
            assert_eq!(wanted.give(thread), [Fact::IoPriority]);
        });
    }

    #[test]
    fn the_score_is_the_process_s() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = child.id().cast_signed();
        let thread = Thread {
            process: pid,
            id: pid,
            inside: pid,
        };
        let wanted = Facts {
            oom_score_adj: Some(1000),
            ..Facts::default()
        };
        let usual = Usual::of(pid);
        assert_eq!(wanted.give(thread), []);
        assert_eq!(Facts::of(thread, &usual).unwrap(), wanted);
        let impossible = Facts {
            oom_score_adj: Some(2000),
            ..Facts::default()
        };
        assert_eq!(impossible.give(thread), [Fact::OomScore]);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
