//! An operation on a container, with a fault.

use std::cell::Cell;
use std::fs;
use std::process::{Child, Output, Stdio};

use anyhow::Result;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use stasis::operation::progress::UnderWay;

use crate::campaign::fault::{AtCall, DriverFault, Fault, Program, What};
use crate::campaign::subject::Subject;
use crate::campaign::verb::Verb;
use crate::check::process_tree::has_ended;
use crate::container::bundle::ROOT;
use crate::faults::call::Class;
use crate::faults::{Action, Gate, Hit, Phase, Plan, Trace, Traced};

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
        let child = self.begin(verb, image)?;
        let seen = self.trace(fault, gate, &child)?;
        let output = child.wait_with_output()?;
        let fired = seen.hits.iter().map(ToString::to_string).collect();
        Ok(Over::of(&output, fired, seen))
    }

    /// runc starts CRIU several times for one operation.
    fn trace(&self, fault: &AtCall, gate: &Gate<'_>, child: &Child) -> Result<Traced> {
        let mut seen = Traced::default();
        while let Some(held) = gate.held(|| has_ended(child))? {
            let before = u32::try_from(seen.calls.len())?;
            let number = fault.number.saturating_sub(before);
            let plan = self.plan(fault, number, held.pid);
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

    fn plan(&self, fault: &AtCall, number: u32, program: Pid) -> Plan {
        let engine = (fault.counted == Program::Engine).then_some(program);
        let action = match fault.what {
            What::Kill => Action::Kill,
            What::Fail(error) => Action::Fail(error),
            What::Signal(signal) => Action::Do(Box::new(move || Ok(kill(program, signal)?))),
            What::KillKeeper => Action::Do(Box::new(move || {
                kill_if_there(engine.and_then(keeper_of));
                Ok(())
            })),
            What::KillHelper => {
                let init = self.stasis.host.init();
                Action::Do(Box::new(move || {
                    kill_if_there(helper_in(init));
                    Ok(())
                }))
            }
            What::KillThenKeeper(number) => {
                let (class, action) = (Class::Changes, Action::Kill);
                let next = Plan {
                    class,
                    number,
                    action,
                };
                Action::KillThen(Box::new(move || keeper_of(program)), Box::new(next))
            }
        };
        Plan {
            class: fault.class,
            number,
            action,
        }
    }

    fn phase(&self) -> Phase {
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
        }
    }
}

/// The process that undoes what an operation has begun, if there is one.
fn keeper_of(operation: Pid) -> Option<Pid> {
    processes().find(|pid| {
        let name = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        name.starts_with(b"stasis-keeper\0") && parent(*pid) == Some(operation)
    })
}

/// The process that gives memory back if CRIU is killed, in the host whose first process this is.
fn helper_in(init: u32) -> Option<Pid> {
    let host = fs::read_link(format!("/proc/{init}/ns/pid")).ok()?;
    processes().find(|pid| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let namespace = fs::read_link(format!("/proc/{pid}/ns/pid"));
        name.trim() == "stasis-uffd" && namespace.is_ok_and(|namespace| namespace == host)
    })
}

fn processes() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.map(Pid::from_raw)
}

fn parent(pid: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?;
    Some(Pid::from_raw(parent.parse().ok()?))
}

fn kill_if_there(process: Option<Pid>) {
    if let Some(process) = process {
        let _ = kill(process, Signal::SIGKILL);
    }
}
