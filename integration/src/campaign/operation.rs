//! An operation on a container, with a fault.

use std::cell::Cell;
use std::process::{Child, ChildStderr, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::kill;
use stasis_engine::operation::progress::UnderWay;

use crate::campaign::fault::{AtCall, Beside, DriverFault, Fault, Program, What};
use crate::campaign::subject::Subject;
use crate::campaign::verb::Verb;
use crate::campaign::victim;
use crate::check::process_tree::{has_ended, started_by};
use crate::container::bundle::ROOT;
use crate::faults::call::Class;
use crate::faults::{Action, At, Gate, Hit, Phase, Plan, Trace, Traced};

/// The name of a step before the first phase.
const BEFORE: &str = "begin";

/// An operation that is over; processes that it started may be at work still.
#[derive(Debug)]
pub(super) struct Over {
    pub(super) success: bool,
    pub(super) stderr: String,
    /// The steps at which the fault fired.
    pub(super) fired: Vec<String>,
    /// The calls that were counted.
    pub(super) calls: Vec<Hit>,
    /// Whether CRIU was killed while it held the container's tasks by ptrace: then no process
    /// undoes its changes to them, with or without stasis.
    pub(super) tasks_were_held: bool,
    /// The length of the log before.
    pub(super) log_began: u64,
}

/// An operation that is under way.
#[derive(Debug)]
struct Begun {
    verb: Verb,
    child: Child,
    /// The reader of its output, until the caller is killed.
    reader: Arc<Mutex<Option<ChildStderr>>>,
    tasks_were_held: Arc<AtomicBool>,
}

impl Subject<'_> {
    /// Carries out an operation.
    pub(super) fn carry_out(&mut self, verb: Verb, image: &str, fault: &Fault) -> Result<Over> {
        if verb == Verb::Paused {
            self.bundle.pause()?;
        }
        let log_began = self.log_length();
        let over = match fault {
            Fault::None => self.undisturbed(verb, image, Vec::new()),
            // runc alone starts what begins cold, and its second start at once may wait for ever:
            // `libcontainer.handleFifo`, where the init process has written before it looks.
            Fault::Beside(Beside::Same, _) if verb == Verb::Start && self.begins_cold() => {
                self.undisturbed(verb, image, Vec::new())
            }
            Fault::Beside(beside, later) => {
                let later = Duration::from_millis(*later);
                self.beside(verb, image, *beside, later)
            }
            Fault::ClockBack => {
                let fired = self
                    .clock_goes_back()?
                    .then(|| "clock: set back".to_owned());
                self.undisturbed(verb, image, fired.into_iter().collect())
            }
            Fault::Driver(fault) => self.with_driver(verb, image, fault),
            Fault::AtCall(fault) => self.at_call(verb, image, fault),
        };
        Ok(Over { log_began, ..over? })
    }

    fn undisturbed(&self, verb: Verb, image: &str, fired: Vec<String>) -> Result<Over> {
        let output = self.begin(verb, image)?.wait_with_output()?;
        Ok(Over::of(&output, fired, Traced::default()))
    }

    fn beside(&self, verb: Verb, image: &str, beside: Beside, later: Duration) -> Result<Over> {
        let other = match (beside, verb) {
            (Beside::Checkpoint, _) => Some(self.begin(Verb::LeaveRunning, image)?),
            _ => None,
        };
        sleep(later);
        let child = self.begin(verb, image)?;
        if let Some(mut checkpoint) = other {
            let output = child.wait_with_output()?;
            let fired = (!has_ended(&checkpoint)).then(|| "checkpoint: under way".to_owned());
            checkpoint.wait()?;
            return Ok(Over::of(
                &output,
                fired.into_iter().collect(),
                Traced::default(),
            ));
        }
        sleep(later);
        let is_there = ["running", "paused"].contains(&self.bundle.status()?.as_str());
        let directory = self.bundle.directory();
        let arguments = match (beside, verb) {
            (Beside::Kill, _) => vec!["kill", self.id(), "KILL"],
            (_, Verb::Stop) => vec!["kill", self.id(), "TERM"],
            (_, Verb::Create) => vec!["create", "--bundle", &directory, self.id()],
            _ => vec!["start", self.id()],
        };
        let mut second = self.bundle.runtime(&arguments);
        let second = second.stderr(Stdio::null()).status()?;
        let output = child.wait_with_output()?;
        let fired = is_there || verb != Verb::Stop;
        let fired = fired.then(|| "beside: under way".to_owned());
        let over = Over::of(&output, fired.into_iter().collect(), Traced::default());
        let success = over.success || beside == Beside::Same && second.success();
        Ok(Over { success, ..over })
    }

    /// Whether all processes that began with an operation have ended.
    fn is_over(&self, begun: &Begun) -> bool {
        has_ended(&begun.child) && (begun.verb != Verb::Stop || !self.stasis.stops_somebody())
    }

    fn with_driver(&self, verb: Verb, image: &str, fault: &DriverFault) -> Result<Over> {
        self.stasis.add_order(&fault.to_string())?;
        let output = self.begin(verb, image)?.wait_with_output()?;
        // A stop goes on when its caller has its answer.
        if verb == Verb::Stop {
            self.stasis.nobody_works()?;
        }
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
            Program::Engine | Program::Kill | Program::Stopper => &self.runtime,
        };
        gate.close()?;
        let mut child = self.begin(verb, image)?;
        let mut begun = Begun {
            verb,
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
        while let Some(held) = gate.held(|| self.is_over(begun))? {
            let before = u32::try_from(seen.calls.len())?;
            let plan = Plan {
                class: fault.class,
                at: At::Number(fault.number.saturating_sub(before)),
                action: action(fault, begun),
            };
            gate.close()?;
            let words = fault.counted.started_as(begun.verb);
            let trace = Trace::of_descendant(held, words, plan, self.phase())?;
            let now = trace.seen()?;
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
            Verb::Stop => self
                .bundle
                .operation(&["kill", self.id(), "TERM"])?
                .spawn()?,
            Verb::Create => self.bundle.begin_create()?,
            Verb::Start => self.bundle.begin_start()?,
            Verb::Suspend | Verb::Wake => {
                let mut command = self.stasis.command(&self.toggle.path);
                command.args(["--toggle", "--container", self.id(), "--root", ROOT]);
                command.stdout(Stdio::null()).stderr(Stdio::piped());
                command.spawn()?
            }
        };
        Ok(begun)
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
            log_began: 0,
        }
    }
}

fn action(fault: &AtCall, begun: &Begun) -> Action {
    match fault.what {
        What::Kill if fault.counted == Program::Criu => {
            victim::kill_criu(Arc::clone(&begun.tasks_were_held))
        }
        What::Kill => Action::Kill,
        What::Fail(error) => Action::Fail(error),
        What::Signal(signal) => Action::Do(Box::new(move |program| Ok(kill(program, signal)?))),
        What::KillKeeper => victim::kill_found(victim::keeper_of),
        What::KillMover(mover) => {
            victim::kill_found(move |program| started_by(program, mover.name()))
        }
        What::KillCaller => victim::kill_caller(Arc::clone(&begun.reader)),
        What::KillThenKeeper(number) | What::KillUpToRecover(number, _) => {
            let (class, action) = (Class::Changes, Action::Kill);
            let next = Plan {
                class,
                at: At::Number(number),
                action,
            };
            Action::KillThen(Box::new(victim::keeper_of), Box::new(next))
        }
    }
}
