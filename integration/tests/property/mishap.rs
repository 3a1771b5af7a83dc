//! What goes wrong in an operation.

use std::fmt;
use std::process::Child;
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;
use nix::sys::signal::{Signal, kill};
use stasis_integration::descendant::descendant;

/// One operation's bad luck.
#[derive(Debug, Clone)]
pub(crate) enum Mishap {
    None,
    /// The driver fails: an order for the stand-in.
    Driver(Fault),
    /// The operation gets a signal, after so long; the driver may be slow meanwhile.
    Signal(Signal, Duration, Option<Fault>),
}

/// An order for the stand-in.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    call: &'static str,
    tag: String,
    action: String,
    times: u32,
}

/// The codes that calls fail with; 2 is final in a restore.
const CODES: [i32; 5] = [2, 304, 401, 801, 999];
const CALLS: [&str; 5] = ["lock", "checkpoint", "restore", "unlock", "get-state"];

impl Mishap {
    pub(crate) fn any(random: &mut Rng, tags: &[String]) -> Self {
        match random.u32(..10) {
            0..4 => Self::None,
            4..7 => Self::Driver(Fault::any(random, tags)),
            _ => {
                let signal = [Signal::SIGTERM, Signal::SIGKILL][random.usize(..2)];
                let after = Duration::from_millis(random.u64(..700));
                let slow = random.bool().then(|| Fault::slow(random, tags));
                Self::Signal(signal, after, slow)
            }
        }
    }

    /// What the stand-in has to be told.
    pub(crate) fn order(&self) -> String {
        match self {
            Self::Driver(fault) | Self::Signal(_, _, Some(fault)) => fault.to_string(),
            _ => String::new(),
        }
    }

    /// Sends the signal, if there is one; whether it ends the operation without a word.
    pub(crate) fn strike(&self, operation: &Child) -> Result<bool> {
        let Self::Signal(signal, after, _) = self else {
            return Ok(false);
        };
        let Some(runtime) = descendant(operation, "stasis-runtime")? else {
            return Ok(false);
        };
        sleep(*after);
        // It may be over.
        let was_there = kill(runtime, *signal).is_ok();
        Ok(was_there && *signal == Signal::SIGKILL)
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

impl Fault {
    fn any(random: &mut Rng, tags: &[String]) -> Self {
        let call = CALLS[random.usize(..CALLS.len())];
        let action = match random.u32(..10) {
            0 => "crash".to_owned(),
            1 | 2 => return Self::slow(random, tags),
            3 | 4 if call == "lock" => "busy".to_owned(),
            _ => format!("error:{}", CODES[random.usize(..CODES.len())]),
        };
        Self {
            call,
            tag: one_of(random, tags),
            action,
            times: random.u32(1..3),
        }
    }

    fn slow(random: &mut Rng, tags: &[String]) -> Self {
        Self {
            call: CALLS[random.usize(..CALLS.len())],
            tag: one_of(random, tags),
            action: format!("slow:{}", random.u32(10..600)),
            times: 1,
        }
    }

    fn is_slow(&self) -> bool {
        self.action.starts_with("slow")
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {} {}",
            self.call, self.tag, self.action, self.times
        )
    }
}

fn one_of(random: &mut Rng, tags: &[String]) -> String {
    tags[random.usize(..tags.len())].clone()
}
