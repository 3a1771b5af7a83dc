//! The operations on other containers with which an operation shares its outcome: all of them
//! enter each step together, and all succeed, or none does.
//!
//! A crate above the engine brings them together. The engine reports its steps to it, and knows of
//! the others only the file that decides ([`SharedOutcome`]): whichever process undoes a killed
//! operation reads the decision there.

use std::fmt::Debug;

use serde::{Deserialize, Serialize};
use stasis_host::cancel::Cancel;

use crate::error::Failure;
use crate::operation::outcome::SharedOutcome;
use crate::operation::timeline::Timeline;

/// The steps that operations enter together, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Nothing is in the way, and nothing is changed.
    Checked,
    /// Its program was notified, and there is a place for its GPU contents.
    Ready,
    /// Its locked processes were asked what GPU memory they share; no tag of ours is left in it.
    Surveyed,
    /// Nothing that they share is in the way. Its GPU memory is moved from here on.
    Movable,
    /// Its GPU contents are in host memory, and it is frozen.
    Still,
    /// Its image is on disk.
    Written,
    /// There is room for the restore, beside the others, and nothing is changed.
    Admitted,
    /// The files of its image are verified.
    Verified,
    /// CRIU has brought its processes back, and they are frozen.
    Back,
    /// They have their GPUs, and are locked and frozen.
    Whole,
}

/// The other operations.
pub trait Companions: Debug + Sync {
    /// The outcome that they share; `None`: there are no others.
    fn outcome(&self) -> Option<&SharedOutcome>;

    /// Waits until all have reached this step. After the last one of a checkpoint, or of a restore,
    /// that of all is complete.
    ///
    /// # Errors
    /// [`Failure`]: none of them goes on.
    fn meet(&self, step: Step, cancel: &Cancel, timeline: &mut Timeline<'_>)
    -> Result<(), Failure>;
}

/// No others: the operation waits for nothing.
#[derive(Debug)]
pub struct Alone;

impl Companions for Alone {
    fn outcome(&self) -> Option<&SharedOutcome> {
        None
    }

    fn meet(&self, _: Step, _: &Cancel, _: &mut Timeline<'_>) -> Result<(), Failure> {
        Ok(())
    }
}
