//! An operation on a container, with a fault.

use std::cell::Cell;
use std::process::{Child, ChildStderr, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::Result;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use stasis::operation::progress::UnderWay;

use crate::campaign::fault::{AtCall, DriverFault, Fault, Program, What};
use crate::campaign::subject::Subject;
use crate::campaign::verb::Verb;
use crate::campaign::victim;
use crate::check::process_tree::has_ended;
use crate::container::bundle::ROOT;
use crate::faults::call::Class;
use crate::faults::{Action, At, Gate, Hit, Phase, Plan, Trace, Traced};

/// What a step is called that no phase has.
const BEFORE: &str = "begin";

/// An operation that is over; what it has started may be at work still.
#[derive(Debug)]
pub(super) struct Over {
    pub(super) success: bool,
    pub(super) stderr: String,
    /// What the fault has hit.
    pub(super) fired: Vec<String>,
    /// The calls that were counted.
    pub(super) calls: Vec<Hit>,
    /// Whether CRIU was killed while it held the container's tasks by ptrace: what it has done to
    /// them then is undone by nobody, with or without stasis.
    pub(super) tasks_were_held: bool,
}

/// An operation that is under way.
#[derive(Debug)]
struct Begun {
    child: Child,
    /// Until nobody reads any more what it says.
    reader: Arc<Mutex<Option<ChildStderr>>>,
    tasks_were_held: Arc<AtomicBool>,
}

impl Subject<'_> {
    /// Carries out an operation.
    pub(super) fn carry_out(&self, verb: Verb, image: &str, fault: &Fault) -> Result<Over> {
        if verb == Verb::Paused {
            self.bundle.pause()?;
        }
        match fault {
            Fault::None => {
                let output = self.begin(verb, image)?.wait_with_output()?;
                Ok(Over::of(&output, Vec::new(), Traced::default()))
            }
            Fault::Driver(fault) => self.with_driver(verb, image, fault),
            Fault::AtCall(fault) => self.at_call(verb, image, fault),
        }
    }

    fn with_driver(&self, verb: Verb, image: &str, fault: &DriverFault) -> Result<Over> {
        self.stasis.add_order(&fault.to_string())?;
        let output = self.begin(verb, image)?.wait_with_output()?;
        let left = self.stasis.take_order(fault.call, &fault.tag)?;
        let fired = (left < fault.times).then(|| format!("driver: {}", fault.call));
        Ok(Over::of(
            &output,
            fired.into_iter().collect(),
            Traced::default(),
        ))
    }

    fn at_call(&self, verb: Verb, image: &str, fault: &AtCall) -> Result<Over> {
        let gate = match fault.counted {
            Program::Runc => &self.shared.runc,
            Program::Criu => &self.shared.criu,
            Program::Engine if matches!(verb, Verb::Suspend | Verb::Wake) => &self.toggle,
            Program::Engine => &self.runtime,
        };
        gate.close()?;
        let mut child = self.begin(verb, image)?;
        let mut begun = Begun {
            reader: Arc::new(Mutex::new(child.stderr.take())),
            child,
            tasks_were_held: Arc::default(),
        };
        let seen = self.trace(fault, gate, &begun)?;
        begun.child.stderr = victim::taken(&begun.reader);
        let output = begun.child.wait_with_output()?;
        let fired = seen.hits.iter().map(ToString::to_string).collect();
        Ok(Over {
            tasks_were_held: begun.tasks_were_held.load(Ordering::SeqCst),
            ..Over::of(&output, fired, seen)
        })
    }

    /// runc starts CRIU several times for one operation.
    fn trace(&self, fault: &AtCall, gate: &Gate<'_>, begun: &Begun) -> Result<Traced> {
        let mut seen = Traced::default();
        while let Some(held) = gate.held(|| has_ended(&begun.child))? {
            let before = u32::try_from(seen.calls.len())?;
            let plan = Plan {
                class: fault.class,
                at: At::Number(fault.number.saturating_sub(before)),
                action: self.action(fault, held.pid, begun),
            };
            gate.close()?;
            let now = Trace::from_start(held, plan, self.phase())?.seen()?;
            seen.calls.extend(now.calls);
            seen.hits.extend(now.hits);
            if !seen.hits.is_empty() {
                gate.open()?;
                break;
            }
        }
        Ok(seen)
    }

    fn begin(&self, verb: Verb, image: &str) -> Result<Child> {
        let begun = match verb {
            Verb::Checkpoint => self.bundle.begin_checkpoint(image, &[])?,
            Verb::LeaveRunning | Verb::Paused => {
                self.bundle.begin_checkpoint(image, &["--leave-running"])?
            }
            Verb::Resume => self.bundle.operation(&["resume", self.id()])?.spawn()?,
            Verb::Restore => self.bundle.begin_restore(image)?,
            Verb::Suspend | Verb::Wake => {
                let mut command = self.stasis.command(&self.toggle.path);
                command.args(["--toggle", "--container", self.id(), "--root", ROOT]);
                command.stdout(Stdio::null()).stderr(Stdio::piped());
                command.spawn()?
            }
        };
        Ok(begun)
    }

    fn action(&self, fault: &AtCall, program: Pid, begun: &Begun) -> Action {
        match fault.what {
            What::Kill if fault.counted == Program::Criu => {
                victim::kill_criu(program, Arc::clone(&begun.tasks_were_held))
            }
            What::Kill => Action::Kill,
            What::Fail(error) => Action::Fail(error),
            What::Signal(signal) => Action::Do(Box::new(move || Ok(kill(program, signal)?))),
            What::KillKeeper => victim::kill_found(move || victim::keeper_of(program)),
            What::KillMover(mover) => {
                victim::kill_found(move || victim::started_by(program, mover.name()))
            }
            What::KillCaller => victim::kill_caller(program, Arc::clone(&begun.reader)),
            What::KillThenKeeper(number) | What::KillUpToRecover(number, _) => {
                let (class, action) = (Class::Changes, Action::Kill);
                let next = Plan {
                    class,
                    at: At::Number(number),
                    action,
                };
                Action::KillThen(Box::new(move || victim::keeper_of(program)), Box::new(next))
            }
        }
    }

    pub(super) fn phase(&self) -> Phase {
        let directory = self.bundle.record();
        let last = Cell::new(BEFORE.to_owned());
        Box::new(move || {
            if let Ok(Some(under_way)) = UnderWay::read(&directory) {
                last.set(under_way.phase);
            }
            let phase = last.take();
            last.set(phase.clone());
            phase
        })
    }
}

impl Over {
    fn of(output: &Output, fired: Vec<String>, seen: Traced) -> Self {
        Self {
            success: output.status.success(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            fired,
            calls: seen.calls,
            tasks_were_held: false,
        }
    }
}
