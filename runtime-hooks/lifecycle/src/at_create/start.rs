//! The `start` of a container that was created from an image.

use stasis_engine::context::{Context, Outcome};
use stasis_engine::error::kind::Kind;
use stasis_engine::error::operations_log;
use stasis_engine::error::{Error, Refusal};
use stasis_engine::operation::awaited_start::AwaitedStart;
use stasis_engine::operation::verb::Verb;
use stasis_engine::restore::start;
use stasis_memory_store::refuse_arriving;

use crate::at_create::ended_soon::Noted;
use crate::at_create::pulled::{pull_on, remove_damaged};

/// Starts a container that waits for it, and notes the image with which it goes on, or which has
/// ended it, since a `create` does not read memory; passes others on to the low-level runtime.
///
/// # Errors
/// [`Error`]: a refused start can be tried again, a failed one has ended the container.
pub fn start(context: &Context, id: &str) -> Result<Outcome, Error> {
    let (state_dir, root) = (&context.settings.paths.state_dir, &context.root);
    let Some(awaited) = AwaitedStart::of(state_dir, root, id) else {
        return start::start(context, id);
    };
    if awaited.manifest.is_some() {
        let refused = |reason: Refusal| operations_log::refused(context, Verb::Start, id, reason);
        pull_on(context, &awaited.image).map_err(refused)?;
    }
    let started = start::start(context, id);
    let has_gone_on = match &started {
        Ok(outcome) => matches!(outcome, Outcome::Done(_)),
        Err(Error::Refused { .. }) => false,
        // It has ended.
        Err(error) => error.diagnosis().kind == Kind::ProcessMissing,
    };
    let is_damaged = matches!(&started, Err(error) if is_damage(error))
        && refuse_arriving(&awaited.image).is_ok();
    if is_damaged {
        remove_damaged(context, &awaited.image);
    }
    // One that is removed needs no count.
    if has_gone_on || (is_damaged && awaited.image.exists()) {
        // If it cannot be noted, its end does not count.
        let _ = Noted::of(context, id).begin(&awaited.image);
    }
    started
}

/// Returns whether a start has failed by the fault of its image.
fn is_damage(error: &Error) -> bool {
    !matches!(error, Error::Refused { .. }) && error.diagnosis().kind == Kind::ImageDamaged
}
