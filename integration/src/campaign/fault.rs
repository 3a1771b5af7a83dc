//! The faults of an operation.

use std::fmt;

use nix::errno::Errno;
use nix::sys::signal::Signal;

use crate::campaign::verb::Verb;
use crate::faults::call::Class;

/// The fault of one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// None.
    None,
    /// The driver fails.
    Driver(DriverFault),
    /// Something happens at a system call.
    AtCall(AtCall),
    /// Another operation or a kill hits the container this many milliseconds later.
    Beside(Beside, u64),
    /// The clock is set back: the newest image seems to be of a later time.
    ClockBack,
}

/// An operation or a kill beside an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    /// The same once more.
    Same,
    /// A checkpoint that leaves it running, which begins first.
    Checkpoint,
    /// SIGKILL: the grace period is over.
    Kill,
}

/// Something that happens at the k-th call of a class that a program makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AtCall {
    /// The program whose calls are counted.
    pub counted: Program,
    /// Which calls are counted.
    pub class: Class,
    /// From 1 on.
    pub number: u32,
    /// The effect.
    pub what: What,
}

/// The effect at a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The program that makes the call is killed.
    Kill,
    /// The program gets a signal.
    Signal(Signal),
    /// The call fails.
    Fail(Errno),
    /// The keeper is killed.
    KillKeeper,
    /// The caller that started the operation is killed, and its output has no reader any more.
    KillCaller,
    /// A process that moves GPU contents for the operation is killed, if there is one.
    KillMover(Mover),
    /// The program is killed, and then its keeper, at its call of this number.
    KillThenKeeper(u32),
    /// The same, and then the first `stasis recover`, at its call of this number.
    KillUpToRecover(u32, u32),
}

/// A process that moves GPU contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mover {
    /// Leads the driver's calls to our code, and copies.
    Copies,
    /// Stores, holds or loads them.
    Holds,
}

/// A program of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// `stasis-runtime` or `cuda-checkpoint`.
    Engine,
    /// `stasis-runtime kill`, which begins a stop.
    Kill,
    /// `stasis-stop`, which has the checkpoint made.
    Stopper,
    /// The low-level runtime.
    Runc,
    /// CRIU.
    Criu,
}

/// An order for the stand-in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverFault {
    /// A call of the driver.
    pub call: &'static str,
    /// For which process.
    pub tag: String,
    /// How it goes.
    pub action: String,
    /// How often.
    pub times: u32,
}

impl Program {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Kill => "who begins the stop",
            Self::Stopper => "stasis-stop",
            Self::Runc => "runc",
            Self::Criu => "criu",
        }
    }

    /// Words in the command lines of the processes between the one that waits at its gate and this
    /// program: a stop goes on when the caller has its answer.
    pub(super) fn started_as(self, verb: Verb) -> &'static [&'static str] {
        match (self, verb) {
            (Self::Stopper, _) => &["stasis-stop"],
            (Self::Engine, Verb::Stop) => &["stasis-stop", "checkpoint"],
            _ => &[],
        }
    }
}

impl Mover {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Copies => "stasis-gpu-copy",
            Self::Holds => "stasis-gpu-hold",
        }
    }
}

impl AtCall {
    /// Describes the victim and the effect, for the table.
    pub fn victim(&self) -> String {
        let counted = self.counted.name();
        match self.what {
            What::Kill => format!("{counted} killed"),
            What::Signal(signal) => format!("{counted} gets {signal}"),
            What::Fail(error) => format!("{error:?} for {counted}"),
            What::KillKeeper => "keeper killed".to_owned(),
            What::KillCaller => "caller killed".to_owned(),
            What::KillMover(Mover::Copies) => "who copies GPU contents killed".to_owned(),
            What::KillMover(Mover::Holds) => "who holds GPU contents killed".to_owned(),
            What::KillThenKeeper(_) => "engine, then keeper killed".to_owned(),
            What::KillUpToRecover(..) => "engine, keeper, then recover killed".to_owned(),
        }
    }
}

impl Fault {
    /// Describes the victim and the effect, for the table.
    pub fn victim(&self) -> String {
        match self {
            Self::None => "nobody".to_owned(),
            Self::Driver(fault) => {
                let action = fault.action.split(':').next().unwrap_or_default();
                format!("driver: {action}")
            }
            Self::AtCall(fault) => fault.victim(),
            Self::Beside(Beside::Same, _) => "the same twice".to_owned(),
            Self::Beside(Beside::Checkpoint, _) => "a checkpoint beside it".to_owned(),
            Self::Beside(Beside::Kill, _) => "SIGKILL for the container".to_owned(),
            Self::ClockBack => "clock set back".to_owned(),
        }
    }

    /// Whether a process of the workload may end by itself.
    pub fn crashes(&self) -> bool {
        matches!(self, Self::Driver(fault) if fault.action == "crash")
    }

    /// Whether the driver gives an answer that is final: the process is lost. Each call of the way
    /// back is made twice, so one error is not; but a restore that lacks memory is.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Driver(fault) if fault.action.starts_with("slow") => false,
            Self::Driver(fault) => {
                let is_of_way_back = ["restore", "unlock", "get-state"].contains(&fault.call);
                let is_out_of_memory = fault.call == "restore" && fault.action == "error:2";
                fault.action == "crash" || is_out_of_memory || fault.times > 1 && is_of_way_back
            }
            _ => false,
        }
    }

    /// Whether a keeper is killed: perhaps no process then undoes what the operation has left.
    pub fn kills_keeper(&self) -> bool {
        use What::{KillKeeper, KillThenKeeper, KillUpToRecover};
        let of = |what| matches!(what, KillKeeper | KillThenKeeper(_) | KillUpToRecover(..));
        matches!(self, Self::AtCall(fault) if of(fault.what))
    }

    /// Whether the operation may be killed without a word.
    pub fn is_silent(&self) -> bool {
        match self {
            Self::AtCall(fault) => matches!(
                fault.what,
                What::Kill
                    | What::KillCaller
                    | What::KillThenKeeper(_)
                    | What::KillUpToRecover(..)
                    | What::Signal(_)
            ),
            _ => false,
        }
    }
}

impl fmt::Display for DriverFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            call,
            tag,
            action,
            times,
        } = self;
        write!(f, "{call} {tag} {action} {times}")
    }
}
