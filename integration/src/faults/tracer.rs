//! Traces one program at a time, and carries out a plan.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{JoinHandle, spawn};

use anyhow::{Context, Result, anyhow};
use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use stasis_engine::operation::progress::UnderWay;

use super::call::Call;
use super::gate::Held;
use super::plan::{Action, Hit, Plan};
use super::stop::{self, Stop};
use super::thread::{fail, go_on, seize};

/// Returns the phase of an operation.
pub type Phase = Box<dyn Fn() -> String + Send>;

/// Reads the phase of the operation that has its record in this directory; empty if there is none.
#[must_use]
pub fn phase_in(record: PathBuf) -> Phase {
    Box::new(move || match UnderWay::read(&record) {
        Ok(Some(under_way)) => under_way.phase,
        _ => String::new(),
    })
}

/// A tracer at work, in a thread of its own.
#[derive(Debug)]
pub struct Trace {
    thread: JoinHandle<Result<Traced>>,
    enough: Arc<AtomicBool>,
    program: Pid,
}

/// The calls that a tracer has seen.
#[derive(Debug, Default)]
pub struct Traced {
    /// All counted calls, up to the first at which the action was carried out.
    pub calls: Vec<Hit>,
    /// The calls with an action: in the program, and in the one that was traced after it.
    pub hits: Vec<Hit>,
}

impl Trace {
    /// Traces a program that waits at its gate, from its first call on.
    pub fn from_start(held: Held, plan: Plan, phase: Phase) -> Result<Self> {
        Self::of_descendant(held, &[], plan, phase)
    }

    /// Traces a program that is started by one that waits at its gate, or by a descendant of that:
    /// the command lines have these words, one after the other.
    pub fn of_descendant(
        held: Held,
        words: &[&'static str],
        plan: Plan,
        phase: Phase,
    ) -> Result<Self> {
        let counts = Counts::FromNextProgram;
        let mut held = held;
        let trace = Self::start(held.pid, words, plan, phase, counts)?;
        held.let_go()?;
        Ok(trace)
    }

    /// Traces a program that runs.
    pub fn of_running(program: Pid, plan: Plan, phase: Phase) -> Result<Self> {
        Self::start(program, &[], plan, phase, Counts::AtOnce)
    }

    fn start(
        program: Pid,
        words: &[&'static str],
        plan: Plan,
        phase: Phase,
        counts: Counts,
    ) -> Result<Self> {
        let enough = Arc::new(AtomicBool::new(false));
        let (ready, is_ready) = channel();
        let tracer = Tracer {
            program,
            to_come: words.iter().rev().copied().collect(),
            follows: !words.is_empty(),
            counts,
            plan: Some(plan),
            phase,
            count: 0,
            failing: BTreeMap::new(),
            seen: Traced::default(),
            enough: Arc::clone(&enough),
        };
        let thread = spawn(move || tracer.run(&ready));
        // Without an answer the thread returns an error.
        let _ = is_ready.recv();
        Ok(Self {
            thread,
            enough,
            program,
        })
    }

    /// Returns the calls seen, once the program has ended or the action was carried out.
    pub fn seen(self) -> Result<Traced> {
        let seen = self.thread.join();
        seen.map_err(|_| anyhow!("a tracer panicked"))?
    }

    /// Returns the calls seen until now; the program goes on untraced.
    pub fn seen_so_far(self) -> Result<Traced> {
        self.enough.store(true, Ordering::SeqCst);
        // Wakes the tracer, and nothing else: without a tracer the signal is ignored. The program
        // may have ended.
        let _ = kill(self.program, Signal::SIGCONT);
        self.seen()
    }
}

/// The moment from which calls are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counts {
    AtOnce,
    FromNextProgram,
}

struct Tracer {
    program: Pid,
    /// Words of the programs on the way to the one whose calls are counted, the next one last.
    to_come: Vec<&'static str>,
    follows: bool,
    counts: Counts,
    /// The plan, until it is carried out.
    plan: Option<Plan>,
    phase: Phase,
    count: u32,
    /// The errors of the calls that threads are in.
    failing: BTreeMap<Pid, Errno>,
    seen: Traced,
    enough: Arc<AtomicBool>,
}

impl Tracer {
    fn run(mut self, ready: &Sender<()>) -> Result<Traced> {
        let seized = seize(self.program, self.options());
        seized.with_context(|| format!("tracing process {}", self.program))?;
        ready.send(())?;
        // Threads that this thread still traces when it ends go on untraced.
        while !self.is_over() {
            match stop::next()? {
                Stop::Nobody => break,
                Stop::Ended(thread) if thread == self.program && self.to_come.is_empty() => break,
                Stop::Ended(_) => {}
                Stop::Program(thread) if self.counts == Counts::FromNextProgram => {
                    self.counts = Counts::AtOnce;
                    go_on(thread, None);
                }
                Stop::Program(process) if process != self.program => self.follow(process),
                // The engine hands over to runc.
                Stop::Program(_) => break,
                Stop::Entry(thread) | Stop::Exit(thread) if self.is_behind(thread) => {
                    let _ = ptrace::detach(thread, None);
                }
                Stop::Signal(thread, signal) => go_on(thread, Some(signal)),
                Stop::New(thread, new) => {
                    if self.to_come.is_empty() && !self.is_of_program(new) {
                        // Its first stop may be over; then it has been resumed already.
                        let _ = waitpid(new, Some(WaitPidFlag::__WALL));
                        let _ = ptrace::detach(new, None);
                    }
                    go_on(thread, None);
                }
                Stop::Other(thread) if !self.to_come.is_empty() || self.is_of_program(thread) => {
                    go_on(thread, None);
                }
                Stop::Other(process) => drop(ptrace::detach(process, None)),
                Stop::Exit(thread) => {
                    if let Some(error) = self.failing.remove(&thread) {
                        fail(thread, error);
                    }
                    go_on(thread, None);
                }
                Stop::Entry(thread) => {
                    self.before_call(thread)?;
                    go_on(thread, None);
                }
            }
        }
        Ok(self.seen)
    }

    /// Whether it is a thread of the program. CRIU starts tasks like threads, then traces them.
    fn is_of_program(&self, thread: Pid) -> bool {
        Path::new(&format!("/proc/{}/task/{thread}", self.program)).exists()
    }

    /// Whether it is a thread of a program that was on the way.
    fn is_behind(&self, thread: Pid) -> bool {
        self.follows && self.to_come.is_empty() && !self.is_of_program(thread)
    }

    /// Follows a child of the program if it is the next one on the way, and detaches it if not.
    fn follow(&mut self, process: Pid) {
        let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        if self.to_come.pop_if(|word| line.contains(*word)).is_some() {
            self.program = process;
            go_on(process, None);
        } else {
            let _ = ptrace::detach(process, None);
        }
    }

    /// The program's children are traced as long as another program is to come.
    fn options(&self) -> Options {
        let children = Options::PTRACE_O_TRACEFORK | Options::PTRACE_O_TRACEVFORK;
        match self.to_come[..] {
            [] => Options::empty(),
            _ => children,
        }
    }

    fn is_over(&self) -> bool {
        let is_done = self.plan.is_none() && self.failing.is_empty();
        is_done || self.enough.load(Ordering::SeqCst)
    }

    fn before_call(&mut self, thread: Pid) -> Result<()> {
        let Some(plan) = self.plan.as_ref().filter(|_| self.to_come.is_empty()) else {
            return Ok(());
        };
        // The thread may have been killed.
        let Ok(registers) = ptrace::getregs(thread) else {
            return Ok(());
        };
        let call = Call::of(thread, &registers).filter(|call| call.is_of(plan.class));
        let Some(call) = call.filter(|_| self.counts == Counts::AtOnce) else {
            return Ok(());
        };
        let phase = (self.phase)();
        let hit = Hit { phase, call };
        self.seen.calls.push(hit.clone());
        self.count += 1;
        match self.plan.take_if(|plan| plan.at.is(self.count, &hit)) {
            Some(plan) => {
                self.seen.hits.push(hit);
                self.carry_out(plan.action, thread)
            }
            None => Ok(()),
        }
    }

    fn carry_out(&mut self, action: Action, thread: Pid) -> Result<()> {
        match action {
            Action::Kill => kill(self.program, Signal::SIGKILL)?,
            Action::Do(act) => act(self.program)?,
            Action::Fail(error) => {
                let mut registers = ptrace::getregs(thread)?;
                // No call: the kernel leaves the result as it is.
                registers.orig_rax = u64::MAX;
                ptrace::setregs(thread, registers)?;
                self.failing.insert(thread, error);
            }
            Action::KillThen(find, plan) => {
                let next = find(self.program);
                kill(self.program, Signal::SIGKILL)?;
                // The process may have ended by itself.
                if let Some(next) = next.filter(|next| seize(*next, Options::empty()).is_ok()) {
                    (self.program, self.plan, self.count) = (next, Some(*plan), 0);
                }
            }
        }
        Ok(())
    }
}
