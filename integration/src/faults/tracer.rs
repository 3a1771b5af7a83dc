//! Traces one program at a time, and does what a plan says.

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
use stasis::operation::progress::UnderWay;

use super::call::Call;
use super::gate::Held;
use super::plan::{Action, Hit, Plan};
use super::stop::{self, Stop};

/// Says in which phase an operation is.
pub type Phase = Box<dyn Fn() -> String + Send>;

/// The phase of the operation that has its record in this directory; empty if there is none.
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

/// What a tracer has seen.
#[derive(Debug, Default)]
pub struct Traced {
    /// All counted calls, up to the first at which something was done.
    pub calls: Vec<Hit>,
    /// Where something was done: in the program, and in the one that was traced after it.
    pub hits: Vec<Hit>,
}

impl Trace {
    /// Traces a program that waits at its gate, from its first call on.
    ///
    /// # Errors
    /// It cannot be traced.
    pub fn from_start(mut held: Held, plan: Plan, phase: Phase) -> Result<Self> {
        let trace = Self::start(held.pid, plan, phase, Counts::FromNextProgram)?;
        held.let_go()?;
        Ok(trace)
    }

    /// Traces a program that runs.
    ///
    /// # Errors
    /// It cannot be traced.
    pub fn of_running(program: Pid, plan: Plan, phase: Phase) -> Result<Self> {
        Self::start(program, plan, phase, Counts::AtOnce)
    }

    fn start(program: Pid, plan: Plan, phase: Phase, counts: Counts) -> Result<Self> {
        let enough = Arc::new(AtomicBool::new(false));
        let (ready, is_ready) = channel();
        let tracer = Tracer {
            program,
            counts,
            plan: Some(plan),
            phase,
            count: 0,
            failing: BTreeMap::new(),
            seen: Traced::default(),
            enough: Arc::clone(&enough),
        };
        let thread = spawn(move || tracer.run(&ready));
        // Without an answer the thread has an error to say.
        let _ = is_ready.recv();
        Ok(Self {
            thread,
            enough,
            program,
        })
    }

    /// What was seen, once the program has ended or something was done.
    ///
    /// # Errors
    /// The tracer failed.
    pub fn seen(self) -> Result<Traced> {
        let seen = self.thread.join();
        seen.map_err(|_| anyhow!("a tracer panicked"))?
    }

    /// What was seen until now; the program goes on untraced.
    ///
    /// # Errors
    /// The tracer failed.
    pub fn seen_so_far(self) -> Result<Traced> {
        self.enough.store(true, Ordering::SeqCst);
        // Wakes the tracer, and nothing else: without a trace it would be ignored. The program may
        // have ended.
        let _ = kill(self.program, Signal::SIGCONT);
        self.seen()
    }
}

/// From when on calls are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counts {
    AtOnce,
    FromNextProgram,
}

struct Tracer {
    program: Pid,
    counts: Counts,
    /// Until it is carried out.
    plan: Option<Plan>,
    phase: Phase,
    count: u32,
    /// How the call fails that a thread is in.
    failing: BTreeMap<Pid, Errno>,
    seen: Traced,
    enough: Arc<AtomicBool>,
}

impl Tracer {
    fn run(mut self, ready: &Sender<()>) -> Result<Traced> {
        seize(self.program).with_context(|| format!("tracing process {}", self.program))?;
        ready.send(())?;
        // What this thread still traces when it ends goes on untraced.
        while !self.is_over() {
            match stop::next()? {
                Stop::Nobody => break,
                Stop::Ended(thread) if thread == self.program => break,
                Stop::Ended(_) => {}
                Stop::Program(thread) if self.counts == Counts::FromNextProgram => {
                    self.counts = Counts::AtOnce;
                    go_on(thread, None);
                }
                // The engine hands over to runc.
                Stop::Program(_) => break,
                Stop::Signal(thread, signal) => go_on(thread, Some(signal)),
                Stop::New(thread, new) => {
                    if !self.is_of_program(new) {
                        // Its first stop may be over; then it is let go already.
                        let _ = waitpid(new, Some(WaitPidFlag::__WALL));
                        let _ = ptrace::detach(new, None);
                    }
                    go_on(thread, None);
                }
                Stop::Other(thread) if self.is_of_program(thread) => go_on(thread, None),
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

    /// CRIU starts what it restores as a thread is started, and then traces it itself.
    fn is_of_program(&self, thread: Pid) -> bool {
        Path::new(&format!("/proc/{}/task/{thread}", self.program)).exists()
    }

    fn is_over(&self) -> bool {
        let is_done = self.plan.is_none() && self.failing.is_empty();
        is_done || self.enough.load(Ordering::SeqCst)
    }

    fn before_call(&mut self, thread: Pid) -> Result<()> {
        let Some(plan) = &self.plan else {
            return Ok(());
        };
        // It may have been killed.
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
            Action::Do(act) => act()?,
            Action::Fail(error) => {
                let mut registers = ptrace::getregs(thread)?;
                // No call: the kernel leaves the result as it is.
                registers.orig_rax = u64::MAX;
                ptrace::setregs(thread, registers)?;
                self.failing.insert(thread, error);
            }
            Action::KillThen(find, plan) => {
                let next = find();
                kill(self.program, Signal::SIGKILL)?;
                // It may have ended by itself.
                if let Some(next) = next.filter(|next| seize(*next).is_ok()) {
                    (self.program, self.plan, self.count) = (next, Some(*plan), 0);
                }
            }
        }
        Ok(())
    }
}

/// Begins to trace all threads of a process.
fn seize(process: Pid) -> Result<()> {
    // Neither fork nor vfork: what it starts is not traced.
    let options =
        Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_TRACECLONE | Options::PTRACE_O_TRACEEXEC;
    for entry in fs::read_dir(format!("/proc/{process}/task"))? {
        let thread = Pid::from_raw(entry?.file_name().to_string_lossy().parse()?);
        ptrace::seize(thread, options)?;
        // Once it has stopped it is let go from call to call.
        ptrace::interrupt(thread)?;
    }
    Ok(())
}

fn fail(thread: Pid, error: Errno) {
    if let Ok(mut registers) = ptrace::getregs(thread) {
        registers.rax = (-i64::from(error as i32)).cast_unsigned();
        let _ = ptrace::setregs(thread, registers);
    }
}

/// To the next call; a thread that was killed meanwhile goes to its end.
fn go_on(thread: Pid, signal: Option<Signal>) {
    let _ = ptrace::syscall(thread, signal);
}
