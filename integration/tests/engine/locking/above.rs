//! A cgroup above the container's that is frozen, as that of a pod: a checkpoint is refused, or,
//! if the settings say so, thaws it for its time, while all else that it holds stands still.

use std::process::Output;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::process_tree::descendant;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::host::installed::{PROGRAM, StasisHost};

use super::LIMITS;
use super::setup::{Counts, FROZEN, THAWED, set_above};

/// While a lock is held the others wait for it.
const THAW: &str = "deadlines.lock_ms = 60000\npreflight.frozen_above = \"thaw\"\n";
/// Which of the cgroups are frozen by themselves: the one above, the container's, the one beside.
const AS_FOUND: [bool; 3] = [true, false, false];
const MEANWHILE: [bool; 3] = [false, false, true];

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
        &["refused", "a frozen cgroup above", "nothing was changed"],
    );
    assert_eq!(states?, [true, true, false]);
    Ok(())
}

pub(super) fn it_is_thawed_for_a_checkpoint(
    stasis: &StasisHost,
    three: &Bundle<'_>,
    _: &mut Counts,
) -> Result<()> {
    stasis.set("runc", THAW)?;
    stasis.hold_driver("lock b", "lock")?;
    set_above(stasis, FROZEN)?;
    let child = three.begin_checkpoint("thawed", &["--leave-running"])?;
    stasis.until_driver_is_called()?;
    assert_eq!(frozen_by_themselves(stasis)?, MEANWHILE);
    stasis.let_driver_go("lock")?;
    let output = child.wait_with_output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{stderr}");
    assert_eq!(frozen_by_themselves(stasis)?, AS_FOUND);
    set_above(stasis, THAWED)
}

/// It fails, and another one is killed.
pub(super) fn it_is_frozen_again_after_a_failure(
    stasis: &StasisHost,
    three: &Bundle<'_>,
    _: &mut Counts,
) -> Result<()> {
    set_above(stasis, FROZEN)?;
    stasis.inject("checkpoint b error:999 1")?;
    three.checkpoint_fails("failed", &["--leave-running"])?;
    assert_eq!(frozen_by_themselves(stasis)?, AS_FOUND);

    stasis.hold_driver("lock b", "lock")?;
    let mut child = three.begin_checkpoint("killed", &["--leave-running"])?;
    stasis.until_driver_is_called()?;
    let runtime = descendant(&child, "stasis-runtime")?.context("it is over")?;
    kill(runtime, Signal::SIGKILL)?;
    ensure!(!child.wait()?.success(), "it was not killed");
    stasis.let_driver_go("lock")?;
    stasis.inject("")?;
    wait_until_clear(|| {
        let states = frozen_by_themselves(stasis)?;
        Ok((states != AS_FOUND).then(|| format!("{states:?}")))
    })?;
    stasis.set("runc", LIMITS)?;
    set_above(stasis, THAWED)
}

/// For a suspend, a check and a resume.
pub(super) fn it_is_thawed_in_place(
    stasis: &StasisHost,
    _: &Bundle<'_>,
    _: &mut Counts,
) -> Result<()> {
    set_above(stasis, FROZEN)?;
    let refused = stasis_of_three(stasis, "suspend")?;
    ensure!(!refused.status.success(), "{refused:?}");
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert_contains(&stderr, &["a frozen cgroup above", "nothing was done"]);
    assert_eq!(frozen_by_themselves(stasis)?, AS_FOUND);
    stasis.set("runc", THAW)?;
    for (verb, call) in [
        ("check", "get-state"),
        ("suspend", "checkpoint"),
        ("resume", "restore"),
    ] {
        stasis.hold_driver(&format!("{call} b"), "above")?;
        std::thread::scope(|scope| {
            let done = scope.spawn(|| stasis_of_three(stasis, verb));
            let called = stasis.until_driver_is_called();
            let meanwhile = called.and_then(|()| frozen_by_themselves(stasis));
            stasis.let_driver_go("above")?;
            let done = done.join().ok().context("it panicked")??;
            ensure!(done.status.success(), "{verb}: {done:?}");
            assert_eq!(meanwhile?, MEANWHILE, "{verb}");
            anyhow::Ok(())
        })?;
        stasis.inject("")?;
        assert_eq!(frozen_by_themselves(stasis)?, AS_FOUND, "{verb}");
    }
    stasis.set("runc", LIMITS)?;
    set_above(stasis, THAWED)
}

fn stasis_of_three(stasis: &StasisHost, verb: &str) -> Result<Output> {
    let mut command = stasis.command(PROGRAM);
    Ok(command.args([verb, "--root", ROOT, "three"]).output()?)
}

fn put_a_process_beside(stasis: &StasisHost) -> Result<()> {
    let script = "for held in /sys/fs/cgroup/freezer/held /sys/fs/cgroup/held; do \
                  [ -d $held ] && break; done; mkdir $held/beside; \
                  sleep 600 </dev/null >/dev/null 2>&1 & echo $! >$held/beside/cgroup.procs";
    stasis.host.run(&["bash", "-ec", script]).map(drop)
}

fn frozen_by_themselves(stasis: &StasisHost) -> Result<[bool; 3]> {
    let script = "for cgroup in held held/three held/beside; do \
                  cat /sys/fs/cgroup/freezer/$cgroup/freezer.self_freezing 2>/dev/null || \
                  cat /sys/fs/cgroup/$cgroup/cgroup.freeze; done";
    let said = stasis.host.run_for_text(&["bash", "-ec", script])?;
    let states: Vec<bool> = said.lines().map(|line| line == "1").collect();
    states.try_into().ok().context(said)
}
