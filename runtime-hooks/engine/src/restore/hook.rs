//! Tells the program of a restored container that its processes have their GPU.

use crate::container::hooks::Hooks;
use crate::context::Context;
use crate::low_level::hook::Run;
use crate::operation::Operation;
use crate::operation::timeline::Timeline;

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
    let hook = match Hooks::of(&context.settings.hooks, &container) {
        Ok(hooks) => hooks.after_restore,
        Err(error) => {
            timeline.note(format!("{error}; no hook was run"));
            None
        }
    };
    let Some(hook) = hook else {
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
