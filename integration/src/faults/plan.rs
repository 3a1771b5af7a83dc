//! The action of a tracer at a certain call.

use std::fmt;

use anyhow::Result;
use nix::errno::Errno;
use nix::unistd::Pid;

use super::call::{Call, Class};

/// An action at a call, before the call.
pub enum Action {
    /// The program gets SIGKILL.
    Kill,
    /// The call is not made, and fails with this error.
    Fail(Errno),
    /// This function runs on the program while it stands still; then the call is made.
    Do(Box<dyn FnOnce(Pid) -> Result<()> + Send>),
    /// The program gets SIGKILL; then this other one is traced, if there is one.
    KillThen(Box<dyn FnOnce(Pid) -> Option<Pid> + Send>, Box<Plan>),
}

/// An action and the call at which it is carried out.
pub struct Plan {
    /// Which calls are counted.
    pub class: Class,
    /// The call at which the action is carried out.
    pub at: At,
    /// The action.
    pub action: Action,
}

/// One of the counted calls.
pub enum At {
    /// The one with this number, from 1 on.
    Number(u32),
    /// The first for which the function holds.
    First(Box<dyn FnMut(&Hit) -> bool + Send>),
}

impl At {
    pub(super) fn is(&mut self, number: u32, hit: &Hit) -> bool {
        match self {
            Self::Number(wanted) => number == *wanted,
            Self::First(is_so) => is_so(hit),
        }
    }
}

/// A call at which an action was carried out.
#[derive(Debug, Clone)]
pub struct Hit {
    /// The operation's phase then.
    pub phase: String,
    /// The call.
    pub call: Call,
}

impl fmt::Debug for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::First(_) => f.write_str("First"),
        }
    }
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill => f.write_str("Kill"),
            Self::Fail(error) => write!(f, "Fail({error})"),
            Self::Do(_) => f.write_str("Do"),
            Self::KillThen(_, plan) => write!(f, "KillThen({plan:?})"),
        }
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}: {:?}", self.class, self.at, self.action)
    }
}

impl fmt::Display for Hit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.phase, self.call)
    }
}
