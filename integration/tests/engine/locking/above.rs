//! A frozen cgroup above the container's, such as a pod's: no operation is begun, and no cgroup is
//! thawed.

use std::process::Output;

use anyhow::{Context, Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::host::installed::{PROGRAM, StasisHost};

use super::setup::{Counts, FROZEN, THAWED, set_above};

/// Whether each cgroup is frozen by itself: the one above, the container's, the one beside.
const AS_FOUND: [bool; 3] = [true, false, false];

pub(super) fn one_that_is_paused_as_well_is_refused(
    stasis: &StasisHost,
    three: &Bundle<'_>,
    _: &mut Counts,
) -> Result<()> {
    put_a_process_beside(stasis)?;
    three.pause()?;
    set_above(stasis, FROZEN)?;
    let message = three.checkpoint_fails("paused", &[]);
    let states = frozen_by_themselves(stasis);
    set_above(stasis, THAWED)?;
    three.resume()?;
    assert_contains(
        &message?,
        &[
            "refused",
            "a frozen cgroup above",
            "/held (`echo ",
            "nothing was changed",
        ],
    );
    assert_eq!(states?, [true, true, false]);
    Ok(())
}

/// A suspend, a resume and a check.
pub(super) fn nothing_is_begun_in_place(
    stasis: &StasisHost,
    _: &Bundle<'_>,
    _: &mut Counts,
) -> Result<()> {
    for verb in ["check", "suspend", "resume"] {
        set_above(stasis, FROZEN)?;
        let refused = stasis_of_three(stasis, verb)?;
        assert_eq!(frozen_by_themselves(stasis)?, AS_FOUND, "{verb}");
        set_above(stasis, THAWED)?;
        ensure!(!refused.status.success(), "{verb}: {refused:?}");
        let said = [refused.stdout, refused.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert_contains(&said, &["a frozen cgroup above", "/held (`echo "]);
        if verb == "suspend" {
            assert_contains(&said, &["nothing was done"]);
            let suspended = stasis_of_three(stasis, verb)?;
            ensure!(suspended.status.success(), "{suspended:?}");
        }
    }
    let resumed = stasis_of_three(stasis, "resume")?;
    ensure!(resumed.status.success(), "{resumed:?}");
    Ok(())
}

fn stasis_of_three(stasis: &StasisHost, verb: &str) -> Result<Output> {
    let mut command = stasis.command(PROGRAM);
    Ok(command.args([verb, "--root", ROOT, "three"]).output()?)
}

fn put_a_process_beside(stasis: &StasisHost) -> Result<()> {
    let script = "for held in /sys/fs/cgroup/freezer/held /sys/fs/cgroup/held; do \
                  [ -d $held ] && break; done; mkdir $held/beside; \
                  sleep 600 </dev/null >/dev/null 2>&1 & echo $! >$held/beside/cgroup.procs";
    stasis.run(&["bash", "-ec", script]).map(drop)
}

fn frozen_by_themselves(stasis: &StasisHost) -> Result<[bool; 3]> {
    let script = "for cgroup in held held/three held/beside; do \
                  cat /sys/fs/cgroup/freezer/$cgroup/freezer.self_freezing 2>/dev/null || \
                  cat /sys/fs/cgroup/$cgroup/cgroup.freeze; done";
    let said = stasis.run_for_text(&["bash", "-ec", script])?;
    let states: Vec<bool> = said.lines().map(|line| line == "1").collect();
    states.try_into().ok().context(said)
}
