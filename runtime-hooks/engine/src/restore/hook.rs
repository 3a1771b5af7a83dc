//! Tells the program of a restored container that its processes have their GPU.

use crate::container::Container;
use crate::container::hooks::{Hook, Hooks};
use crate::context::Context;
use crate::low_level::hook::{Run, pending};
use crate::operation::timeline::Timeline;
use crate::operation::{Operation, OperationError};

/// Runs the hook `after-restore` that the new container declares. It goes on whatever comes of
/// that, which is noted.
pub(super) fn tell_program(
    context: &Context,
    operation: &Operation,
    id: &str,
    timeline: &mut Timeline<'_>,
) {
    // A container that has ended meanwhile gets no notification.
    let Ok(Some(container)) = context.container(id) else {
        return;
    };
    let Some(hook) = declared(context, &container, timeline) else {
        return;
    };
    let run = Run {
        place: &context.place(),
        operation,
        container: &container,
        hook: &hook,
    };
    let ran = timeline.time(hook.when.phase(), || run.run(&context.cancel));
    if let Some(note) = ran.unwrap_or_else(|error| Some(error.to_string())) {
        timeline.note(note);
    }
}

/// Records the hook that the new container declares, before anything resumes it: whichever process
/// does so runs it.
pub(super) fn record(
    context: &Context,
    operation: &Operation,
    container: &Container,
    timeline: &mut Timeline<'_>,
) -> Result<(), OperationError> {
    match declared(context, container, timeline) {
        Some(hook) => pending::record(operation, &context.place(), &hook),
        None => Ok(()),
    }
}

fn declared(context: &Context, container: &Container, timeline: &mut Timeline<'_>) -> Option<Hook> {
    match Hooks::of(&context.settings.hooks, container) {
        Ok(hooks) => hooks.after_restore,
        Err(error) => {
            timeline.note(format!("{error}; no hook was run"));
            None
        }
    }
}
