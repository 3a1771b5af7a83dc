//! What goes wrong in an operation.

use std::fmt;
use std::process::Child;
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;
use nix::sys::signal::{Signal, kill};
use stasis_integration::check::process_tree::descendant;
use stasis_integration::host::installed::StasisHost;

use crate::step::Step;

/// One operation's bad luck.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    None,
    /// The driver fails.
    Driver(DriverFault),
    /// The operation gets a signal.
    Signal(Signal, Moment),
}

/// When an operation gets a signal.
#[derive(Debug, Clone)]
pub(crate) struct Moment {
    step: Step,
    /// How long after the step, where `STASIS_MOMENTS=random` asks for it.
    delay: Duration,
}

/// An order for the stand-in.
#[derive(Debug, Clone)]
pub(crate) struct DriverFault {
    call: &'static str,
    tag: String,
    action: String,
    times: u32,
}

/// The codes that calls fail with; 2 is final in a restore.
const CODES: [i32; 5] = [2, 304, 401, 801, 999];
const CALLS: [&str; 5] = ["lock", "checkpoint", "restore", "unlock", "get-state"];

impl Fault {
    pub(crate) fn any(random: &mut Rng, tags: &[String]) -> Self {
        match random.u32(..10) {
            0..4 => Self::None,
            4..7 => Self::Driver(DriverFault::any(random, tags)),
            _ => {
                let signal = [Signal::SIGTERM, Signal::SIGKILL][random.usize(..2)];
                let step = Step::any(random, tags);
                let delay = Duration::from_millis(random.u64(..700));
                Self::Signal(signal, Moment { step, delay })
            }
        }
    }

    /// Orders what the driver does in the next operation.
    pub(crate) fn order(&self, stasis: &StasisHost) -> Result<()> {
        match self {
            Self::None => stasis.inject(""),
            Self::Driver(fault) => stasis.inject(&fault.to_string()),
            Self::Signal(_, moment) => moment.step.order(stasis),
        }
    }

    /// Sends the signal, if there is one; whether it ends the operation without a message.
    pub(crate) fn send_signal(&self, stasis: &StasisHost, operation: &Child) -> Result<bool> {
        let Self::Signal(signal, moment) = self else {
            return Ok(false);
        };
        let Some(runtime) = descendant(operation, "stasis-runtime")? else {
            return Ok(false);
        };
        moment.step.wait(stasis, operation)?;
        if std::env::var("STASIS_MOMENTS").is_ok_and(|moments| moments == "random") {
            sleep(moment.delay);
        }
        // It may be over.
        let was_there = kill(runtime, *signal).is_ok();
        moment.step.let_go(stasis)?;
        // Before it has begun it has no handler yet.
        let is_silent = *signal == Signal::SIGKILL || matches!(moment.step, Step::Begin);
        Ok(was_there && is_silent)
    }

    /// Whether a process of the workload may end by itself.
    pub(crate) fn crashes(&self) -> bool {
        matches!(self, Self::Driver(fault) if fault.action == "crash")
    }

    /// Whether it may end a process of the workload, or the driver's ability to bring one back.
    pub(crate) fn is_fatal(&self) -> bool {
        match self {
            Self::Driver(fault) => match fault.call {
                "restore" | "unlock" | "get-state" => !fault.is_slow(),
                _ => self.crashes(),
            },
            _ => false,
        }
    }
}

impl DriverFault {
    fn any(random: &mut Rng, tags: &[String]) -> Self {
        let (call, tag) = any_call(random, tags);
        let action = match random.u32(..10) {
            0 => "crash".to_owned(),
            1 | 2 => {
                return Self {
                    call,
                    tag,
                    action: format!("slow:{}", random.u32(10..600)),
                    times: 1,
                };
            }
            3 | 4 if call == "lock" => "busy".to_owned(),
            _ => format!("error:{}", CODES[random.usize(..CODES.len())]),
        };
        Self {
            call,
            tag,
            action,
            times: random.u32(1..3),
        }
    }

    fn is_slow(&self) -> bool {
        self.action.starts_with("slow")
    }
}

impl fmt::Display for DriverFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {} {}",
            self.call, self.tag, self.action, self.times
        )
    }
}

/// A driver call, and the tag of the process that it is for.
pub(crate) fn any_call(random: &mut Rng, tags: &[String]) -> (&'static str, String) {
    let call = CALLS[random.usize(..CALLS.len())];
    (call, tags[random.usize(..tags.len())].clone())
}
