//! The checkpoint of one container of several that share one outcome.
//!
//! Up to the dump it is as any other, but it waits for the others ([`Step`]): before anything is
//! changed, before the lock, which is made for all at once, frozen before the dump, and frozen with
//! an image on disk. The container stays frozen behind the dump, also if it is to end: a dump that
//! ends it could not be taken back.
//!
//! [`Step`]: crate::companions::Step

pub(crate) mod plain;
mod written;

use crate::container::Container;
use crate::context::{Context, Outcome};
use crate::error::Error;
use crate::operation::verb::Verb;
pub(super) use written::{complete, written};

/// The phase of what has containers go on.
pub(crate) const GO_ON: &str = "go on";
/// The phase of what ends them.
pub(crate) const END: &str = "end";

/// The low-level runtime alone shares no outcome: a container that does not run is refused.
pub(super) fn refuse_passing_on(
    context: &Context,
    id: &str,
    ended: Result<Outcome, Error>,
) -> Result<Outcome, Error> {
    match ended {
        Ok(Outcome::PassThrough) => Err(does_not_run(context, id)),
        ended => ended,
    }
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
