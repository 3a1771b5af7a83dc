//! The checkpoint of one container of several that have one outcome (`operation/group.rs`).
//!
//! Up to the dump it is as any other, but it waits for the others
//! ([`Step`](crate::recovery::group::member::Step)): before anything is changed, before the lock,
//! which the parent makes for all, frozen before the dump, and frozen with an image on disk. The
//! container stays frozen behind the dump, also if it is to end: a dump that ends it could not be
//! taken back.

pub(crate) mod plain;
mod written;

use crate::checkpoint::attempt;
use crate::container::Container;
use crate::context::{Context, Outcome};
use crate::error::Error;
use crate::operation::verb::Verb;
use crate::recovery::group::member::Member;
use crate::request::{CheckpointRequest, LowLevelArgs};
pub(super) use written::{complete, written};

/// The phase of what has containers go on.
pub(crate) const GO_ON: &str = "go on";
/// The phase of what ends them.
pub(crate) const END: &str = "end";

/// Checkpoints the container, together with the others.
pub fn checkpoint(
    context: &Context,
    options: &CheckpointRequest,
    member: &Member,
    low_level_args: LowLevelArgs<'_>,
) -> Result<Outcome, Error> {
    let outcome = match attempt(context, options, Some(member), low_level_args) {
        Ok(Outcome::PassThrough) => Err(does_not_run(context, &options.id)),
        outcome => outcome,
    };
    member.say_end(outcome.as_ref().err());
    outcome
}

fn does_not_run(context: &Context, id: &str) -> Error {
    let loaded = Container::load(context.low_level.flavor, &context.root, id);
    match loaded {
        Err(error) => Error::refused(Verb::Checkpoint, id, error),
        // It has been started since.
        Ok(_) => {
            let path = context.root.join(id);
            let error = crate::container::ContainerError::NotFound { path };
            Error::refused(Verb::Checkpoint, id, error)
        }
    }
}
