//! What a tracer does at which call.

use std::fmt;

use anyhow::Result;
use nix::errno::Errno;
use nix::unistd::Pid;

use super::call::{Call, Class};

/// What is done at the k-th call of a class, before the call.
pub enum Action {
    /// The program gets SIGKILL.
    Kill,
    /// The call is not made, and fails so.
    Fail(Errno),
    /// This is done while the program stands still; then the call is made.
    Do(Box<dyn FnOnce() -> Result<()> + Send>),
    /// The program gets SIGKILL; then this other one is traced, if there is one.
    KillThen(Box<dyn FnOnce() -> Option<Pid> + Send>, Box<Plan>),
}

/// At which call what is done.
pub struct Plan {
    /// Which calls are counted.
    pub class: Class,
    /// The number of the call, from 1 on.
    pub number: u32,
    /// What is done.
    pub action: Action,
}

/// A call at which something was done.
#[derive(Debug, Clone)]
pub struct Hit {
    /// The operation's phase then.
    pub phase: String,
    /// The call.
    pub call: Call,
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
        let (class, number) = (self.class, self.number);
        write!(f, "{class:?} {number}: {:?}", self.action)
    }
}

impl fmt::Display for Hit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.phase, self.call)
    }
}
