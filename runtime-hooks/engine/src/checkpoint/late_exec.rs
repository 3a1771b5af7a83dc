//! Looks for processes that `exec` started: before the checkpoint begins and, since it takes
//! seconds in which others may start, right before the dump.

use stasis_config::ExecSessions;
use stasis_linux::Snapshot;

use crate::context::Context;
use crate::error::Refusal;
use crate::preflight::blocker::Blockers;
use crate::preflight::exec_sessions;
use crate::request::{AfterDump, CheckpointRequest};

/// Refuses a checkpoint that would end such processes, if the settings forbid that.
pub(crate) fn refuse(
    context: &Context,
    after: AfterDump,
    snapshot: &Snapshot,
) -> Result<(), Refusal> {
    let settings = &context.settings;
    if after == AfterDump::Exit && settings.preflight.exec == ExecSessions::Refuse {
        Blockers::check(exec_sessions::findings(snapshot), settings)?;
    }
    Ok(())
}

/// Refuses right before the dump; otherwise returns notes on such processes for `operations.log`.
pub(crate) fn refuse_or_note(
    context: &Context,
    options: &CheckpointRequest,
    snapshot: &Snapshot,
) -> Result<Vec<String>, Refusal> {
    refuse(context, options.after, snapshot)?;
    Ok(exec_sessions::notes(snapshot, options.after))
}
