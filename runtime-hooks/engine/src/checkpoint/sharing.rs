//! Memory that processes of a container share, which is known once they are locked.

use std::collections::BTreeMap;
use std::io;
use std::time::Instant;

use stasis_gpu::cuda::process_set::initial_state::ProcessId;
use stasis_gpu::gpu_path::imports::Share;
use stasis_linux::ProcessRef;

use crate::checkpoint::captured::Captured;
use crate::checkpoint::plan::Plan;
use crate::checkpoint::{allowed, check_may_continue};
use crate::companions::Step;
use crate::error::{Failure, Refusal};
use crate::image::manifest::SharedAllocation;
use crate::operation::timeline::Timeline;
use crate::preflight::blocker::Blockers;
use crate::preflight::sharing::at_the_lock;

/// Refuses locked processes, with those of the other containers of a group, that share memory which
/// the driver would not restore. Returns the shares that they have to give up.
///
/// # Errors
/// [`Failure`]: the checkpoint is rolled back, and all processes resume as before.
pub(super) fn survey_together(
    plan: &Plan<'_>,
    captured: &mut Captured,
    locked: &[ProcessRef],
    timeline: &mut Timeline<'_>,
) -> Result<Vec<Share>, Failure> {
    let surveyed = survey(plan, captured, locked, timeline);
    // Other containers of a group may have imported this memory. Until all were asked, tags of
    // ours are in it, so nobody is unlocked; and none is moved if one of them is refused.
    let met = plan.meet(Step::Surveyed, timeline);
    let shares = surveyed?;
    met?;
    plan.meet(Step::Movable, timeline)?;
    Ok(shares)
}

fn survey(
    plan: &Plan<'_>,
    captured: &mut Captured,
    locked: &[ProcessRef],
    timeline: &mut Timeline<'_>,
) -> Result<Vec<Share>, Failure> {
    let (snapshot, inventory) = plan.follow(locked, captured)?;
    plan.operation.record(&captured.intent)?;
    check_may_continue(plan)?;
    let (copying, container) = (&plan.copying, &plan.container);
    let seen = timeline.time("survey", || {
        at_the_lock(copying, locked, container, &inventory, &snapshot)
    });
    let seen = seen.map_err(Failure::SharedMemory)?;
    let found = Blockers::check(seen.found, &plan.context.settings).map_err(Refusal::from)?;
    let notes = found.iter().map(allowed).chain(seen.notes);
    copying.add_notes(notes.collect());
    Ok(seen.shares)
}

/// Has the processes give up what they share, and describes it in the manifest.
///
/// # Errors
/// [`Failure::SharedMemory`]: the checkpoint is rolled back, and all processes share it again.
pub(super) fn give_up_shared(
    plan: &Plan<'_>,
    captured: &mut Captured,
    locked: &[ProcessRef],
    shares: &[Share],
) -> Result<(), Failure> {
    let began = Instant::now();
    let given_up = plan.copying.give_up_imports(shares);
    let took = began.elapsed().as_secs_f64();
    let described = given_up.and_then(|given_up| describe(plan, captured, locked, &given_up));
    let described = described.map_err(Failure::SharedMemory)?;
    if !described.is_empty() {
        let count = described.len();
        plan.copying.add_notes(vec![format!(
            "{count} allocations of GPU memory that processes share are given up ({took:.3} s), and \
             shared again"
        )]);
    }
    captured.manifest.shared = described;
    Ok(())
}

/// Returns the shares that the image has, by pids in the container.
fn describe(
    plan: &Plan<'_>,
    captured: &Captured,
    locked: &[ProcessRef],
    given_up: &[Share],
) -> io::Result<Vec<SharedAllocation>> {
    let pids: BTreeMap<ProcessId, i32> = locked
        .iter()
        .filter_map(|process| Some((ProcessId::of(process), plan.container.pid_inside(process)?)))
        .collect();
    let inside = |process| pids.get(&process).copied();
    let dumped = &captured.manifest.processes;
    let is_dumped = |pid| dumped.iter().any(|process| process.pid == pid);
    let mut described = Vec::new();
    for share in given_up {
        let (Some(importer), Some(owner)) = (inside(share.importer), inside(share.owner)) else {
            return Err(io::Error::other(format!(
                "process {} has memory of process {}, of which one has ended",
                share.importer.pid, share.owner.pid
            )));
        };
        match (is_dumped(importer), is_dumped(owner)) {
            (true, true) => described.push(SharedAllocation {
                importer,
                import: share.import,
                owner,
                owned_at: share.owned_at,
            }),
            // The image does not have it, and needs nothing of it.
            (false, _) => {}
            (true, false) => {
                return Err(io::Error::other(format!(
                    "process {importer} has memory of process {owner}, which `exec` has started \
                     and no image has"
                )));
            }
        }
    }
    Ok(described)
}
