//! The steps of an operation at which it gets a signal.

use std::process::Child;

use anyhow::Result;
use fastrand::Rng;
use stasis_integration::check::process_tree::{descendant, has_ended};
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::host::installed::StasisHost;

use crate::fault::any_call;

/// The name of a held driver call.
const HELD: &str = "step";

/// A step that an operation may take; many have no call of a kind for a process.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// The runtime runs.
    Begin,
    /// CRIU runs.
    Criu,
    /// The driver has got this call ("lock TAG") and not begun with it.
    Call(String),
    /// The driver carries this call out.
    Work(String),
}

impl Step {
    pub(crate) fn any(random: &mut Rng, tags: &[String]) -> Self {
        let (call, tag) = any_call(random, tags);
        let call = format!("{call} {tag}");
        match random.u32(..8) {
            0 => Self::Begin,
            1 | 2 => Self::Criu,
            3..6 => Self::Call(call),
            _ => Self::Work(call),
        }
    }

    /// Has the driver take its time at the step.
    pub(crate) fn order(&self, stasis: &StasisHost) -> Result<()> {
        match self {
            Self::Begin | Self::Criu => stasis.inject(""),
            Self::Call(call) => stasis.hold_driver(call, HELD),
            Self::Work(call) => stasis.inject(&format!("{call} slow:500 1")),
        }
    }

    /// Waits for the step, or for the end of an operation without it.
    pub(crate) fn wait(&self, stasis: &StasisHost, operation: &Child) -> Result<()> {
        match self {
            Self::Begin => Ok(()),
            Self::Criu => descendant(operation, "criu").map(drop),
            Self::Call(_) | Self::Work(_) => wait_until_clear(|| {
                let is_over = stasis.driver_is_called()? || has_ended(operation);
                Ok((!is_over).then(|| format!("{self:?}")))
            }),
        }
    }

    /// Lets the driver go on.
    pub(crate) fn let_go(&self, stasis: &StasisHost) -> Result<()> {
        match self {
            Self::Call(_) => stasis.let_driver_go(HELD),
            _ => Ok(()),
        }
    }
}
