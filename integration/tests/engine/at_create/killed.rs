//! The process that creates a container from an image is killed, and so is its keeper.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use stasis_integration::check::process_tree::started_by;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::faults::call::Class;
use stasis_integration::faults::{Action, At, Gate, Hit, Plan, Trace, phase_in};
use stasis_integration::host::installed::{RUNTIME, StasisHost};

fn removes_what_is_to_undo(hit: &Hit) -> bool {
    let path = hit.call.path.as_ref();
    hit.call.name == "unlink" && path.is_some_and(|path| path.ends_with("undo.json"))
}

/// Kills at the last step of the create, and when the keeper removes its records: the leftovers are
/// not taken for records of the next container of the id, which starts cold.
pub(super) fn nothing_is_left_for_the_next_one_of_its_id(
    stasis: &StasisHost,
    job: &Bundle<'_>,
) -> Result<()> {
    let gate = Gate::build(stasis, "create", "/usr/local/bin/gated", RUNTIME, "*")?;
    job.begin_with("job-good")?;
    gate.close()?;
    let create = ["create", "--bundle", &job.directory(), &job.id];
    let create = Bundle::laid_out(stasis, &job.id)
        .through(&gate.path)
        .runtime(&create)
        .stderr(Stdio::null())
        .spawn();
    let held = gate.held(|| false)?.context("it was not started")?;
    let mut is_undone = false;
    let then = move |hit: &Hit| {
        let was_undone = is_undone;
        is_undone |= removes_what_is_to_undo(hit);
        was_undone
    };
    let (class, action) = (Class::Changes, Action::Kill);
    let at = At::First(Box::new(then));
    let next = Box::new(Plan { class, at, action });
    let plan = Plan {
        class,
        at: At::First(Box::new(removes_what_is_to_undo)),
        action: Action::KillThen(Box::new(|it| started_by(it, "stasis-keeper")), next),
    };
    let seen = Trace::from_start(held, plan, phase_in(job.record()))?.seen()?;
    ensure!(seen.hits.len() == 2, "{:?}", seen.hits);
    create?.wait()?;
    assert_eq!(job.status()?, "");
    job.begin_with("job-none")?;
    job.create()?;
    job.start()?;
    assert_eq!(stasis.ask_until_up(10000)?, "101");
    job.delete()
}
