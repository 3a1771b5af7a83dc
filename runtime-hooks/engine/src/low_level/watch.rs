//! Waits for a program as long as it, or any process that it has started, is still active.
//!
//! How long a dump or a restore takes depends on the memory and the disk. But the program uses the
//! processor meanwhile, if only to wait for the disk page by page. So a program hangs if neither it
//! nor any descendant has used the processor for a long time: it is stopped, or waits for a lock,
//! for a network file system that is gone, or for a process that has ended.

use std::fmt;
use std::fs;
use std::process::Child;
use std::time::{Duration, Instant};

use nix::unistd::{Pid, getpgid};
use stasis_linux::ProcessRef;
use stasis_linux::procfs::{Stat, TaskState, children, processes};

/// How long a program that is asked to end may take.
const CLEAN_UP: Duration = Duration::from_secs(10);
/// How often it is checked, if the limit is long.
const INTERVAL: Duration = Duration::from_secs(2);

/// Which processes are ended once their program hangs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Victims {
    /// The program and its children: CRIU resumes the tasks of a dump when its runc has ended, and
    /// a process that it leaves behind gives them their memory back, in a session of its own. What
    /// is left of the program's process group is killed.
    WithChildren,
    /// All processes that it has started, half-restored tasks included.
    All,
}

/// How long processes that are being ended may take.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CleanUp {
    InTime,
    AsLongAsItMoves,
}

/// A program that did nothing for so long that it was ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hung {
    silent: Duration,
    /// The activity in which each process was seen.
    seen: Vec<String>,
}

/// A program under watch.
pub(crate) struct Watch {
    limit: Duration,
    victims: Victims,
    program: Option<ProcessRef>,
    /// The program and its descendants, ended ones included.
    tree: Vec<Seen>,
    /// The processor time of all of them at the last check.
    used: u64,
    silent: Duration,
    looked: Instant,
}

struct Seen {
    process: ProcessRef,
    /// 0 of the program itself.
    depth: usize,
    ticks: u64,
}

impl Watch {
    /// Watches a child that has just been started.
    pub(crate) fn of(child: &Child, limit: Duration, victims: Victims) -> Self {
        Self::over(ProcessRef::of_child(child).ok().flatten(), limit, victims)
    }

    /// Watches a program of another process.
    pub(crate) fn over(program: Option<ProcessRef>, limit: Duration, victims: Victims) -> Self {
        let tree = program.iter().map(|process| Seen::new(process.clone(), 0));
        Self {
            limit,
            victims,
            tree: tree.collect(),
            program,
            used: 0,
            silent: Duration::ZERO,
            looked: Instant::now(),
        }
    }

    /// Waits until the program has ended.
    ///
    /// # Errors
    /// [`Hung`]; it has been ended.
    pub(crate) fn wait(&mut self) -> Result<(), Hung> {
        while self.runs_for(self.interval()) {
            if let Some(hung) = self.look() {
                return Err(hung);
            }
        }
        Ok(())
    }

    /// How often to look.
    pub(crate) fn interval(&self) -> Duration {
        INTERVAL.min(self.limit / 4)
    }

    /// Checks the program, at most once in an interval, and ends it if it hangs. Must be called now
    /// and then.
    pub(crate) fn look(&mut self) -> Option<Hung> {
        let passed = self.looked.elapsed();
        if passed < self.interval() / 2 {
            return None;
        }
        self.looked = Instant::now();
        if self.has_moved() {
            self.silent = Duration::ZERO;
            return None;
        }
        // Not all of `passed`: this process may have been stopped as well.
        self.silent += passed.min(INTERVAL);
        if self.silent < self.limit {
            return None;
        }
        let hung = Hung {
            silent: self.silent,
            seen: self.alive().map(|seen| doing(&seen.process)).collect(),
        };
        self.end();
        Some(hung)
    }

    fn runs_for(&self, time: Duration) -> bool {
        let program = self.program.as_ref();
        program.is_some_and(|program| matches!(program.outlives(time), Ok(true)))
    }

    fn alive(&self) -> impl Iterator<Item = &Seen> {
        self.tree.iter().filter(|seen| !seen.process.is_gone())
    }

    fn first(&self, which: impl Fn(&Seen) -> bool) -> Option<ProcessRef> {
        let first = self.alive().find(|seen| which(seen));
        first.map(|seen| seen.process.clone())
    }

    /// Returns whether any of them has used the processor, or a new one was found.
    fn has_moved(&mut self) -> bool {
        let before = self.tree.len();
        let mut at = 0;
        // The loop also visits processes that it adds.
        while let Some(seen) = self.tree.get(at) {
            let (pid, depth) = (seen.process.pid(), seen.depth + 1);
            if !seen.process.is_gone() {
                for child in children(pid) {
                    self.found(child, depth);
                }
            }
            at += 1;
        }
        for seen in &mut self.tree {
            if let Ok(Some(stat)) = Stat::of(seen.process.pid())
                && stat.start_time == seen.process.start_time()
            {
                seen.ticks = stat.cpu_ticks;
            }
        }
        let used = self.tree.iter().map(|seen| seen.ticks).sum();
        let has_moved = used != self.used || self.tree.len() != before;
        self.used = used;
        has_moved
    }

    fn found(&mut self, pid: i32, depth: usize) {
        let is_known = self.alive().any(|seen| seen.process.pid() == pid);
        if !is_known && let Ok(Some(process)) = ProcessRef::open(pid) {
            self.tree.push(Seen::new(process, depth));
        }
    }

    /// Ends the program first, so that CRIU sees that its client is gone and cleans up; then, if
    /// that does not help, the others.
    fn end(&mut self) {
        // As long as the program lives, its number is no other group's.
        for pid in processes().unwrap_or_default() {
            if self.is_in_group(pid) {
                self.found(pid, 2);
            }
        }
        for seen in self.alive() {
            if seen.depth == 0 {
                let _ = seen.process.terminate();
            }
            // A stopped process could do neither.
            let _ = seen.process.cont();
        }
        self.wait_for(CleanUp::InTime, |seen| seen.depth == 0);
        match self.victims {
            Victims::WithChildren => {
                self.wait_for(CleanUp::AsLongAsItMoves, |seen| seen.depth < 2);
                self.kill_group();
            }
            // Restored tasks that run would stay active for ever.
            Victims::All => self.wait_for(CleanUp::InTime, |_| true),
        }
    }

    /// Kills those in the process group of the program: a child of CRIU that outlived CRIU has no
    /// parent that would end it.
    fn kill_group(&self) {
        for seen in self.alive() {
            if self.is_in_group(seen.process.pid()) {
                let _ = seen.process.kill();
            }
        }
    }

    /// Whether a process is in the process group of the program, if it has one of its own.
    fn is_in_group(&self, pid: i32) -> bool {
        let group = getpgid(Some(Pid::from_raw(pid))).map(Pid::as_raw);
        let program = self.program.as_ref();
        program.is_some_and(|program| group == Ok(program.pid()))
    }

    /// Waits until some have ended, and kills the others.
    fn wait_for(&mut self, clean_up: CleanUp, which: impl Fn(&Seen) -> bool) {
        let mut silent = Duration::ZERO;
        let limit = CLEAN_UP.min(self.limit);
        let interval = limit / 8;
        while let Some(process) = self.first(&which) {
            if matches!(process.outlives(interval), Ok(false)) {
                continue;
            }
            if self.has_moved() && clean_up == CleanUp::AsLongAsItMoves {
                silent = Duration::ZERO;
                continue;
            }
            silent += interval;
            if silent >= limit {
                for victim in self.alive().filter(|seen| which(seen)) {
                    let _ = victim.process.kill();
                }
                // A process that waits in the kernel for a disk does not end even then.
                let is_gone = |seen: &Seen| matches!(seen.process.outlives(interval), Ok(false));
                self.alive().filter(|seen| which(seen)).all(is_gone);
                return;
            }
        }
    }
}

impl Seen {
    fn new(process: ProcessRef, depth: usize) -> Self {
        let ticks = 0;
        Self {
            process,
            depth,
            ticks,
        }
    }
}

/// Describes a process's activity, for people.
fn doing(process: &ProcessRef) -> String {
    let state = match process.state() {
        Ok(TaskState::Stopped) => "was stopped".to_owned(),
        Ok(TaskState::Traced) => "was held by a tracer".to_owned(),
        // "0" if it runs, and where the kernel does not report it (proc_pid_wchan(5)).
        _ => match fs::read_to_string(format!("/proc/{}/wchan", process.pid())) {
            Ok(place) if place.len() > 1 => format!("waited in the kernel ({place})"),
            _ => "did nothing".to_owned(),
        },
    };
    format!("{process} {state}")
}

impl fmt::Display for Hung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.silent.as_secs_f64();
        write!(f, "it hung, and was ended after {seconds:.0} s in which ")?;
        f.write_str(&self.seen.join(", "))
    }
}

impl std::error::Error for Hung {}

#[cfg(test)]
mod tests;
