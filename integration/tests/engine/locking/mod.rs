//! Processes that do not answer the driver: the checkpoint fails in bounded time, the other
//! processes go on, and the one in question goes on as soon as it can.

mod above;
mod setup;

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use setup::{
    Counts, FROZEN, THAWED, leaves_one_behind, put_below_a_cgroup, says_that_one_is_left, second,
    set_above, signal, until_nothing_waits,
};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{CUDA_CHECKPOINT, StasisHost};
use stasis_integration::on_hosts;

/// Three counters, each on its own; faults name them a, b and c.
const COMMAND: &str = "STASIS_TAG=b /bin/counter 10001 & STASIS_TAG=c /bin/counter 10002 & \
                       STASIS_TAG=a exec /bin/counter 10000";
const LIMITS: &str = "[deadlines]\nlock_ms = 5000\ndriver_s = 20\n";

on_hosts!(all_cases: sid, trixie_v2);

fn all_cases(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::with_containerd(kind)?;
    stasis.set("runc", LIMITS)?;
    let three = Bundle::make(stasis, "three", &["/bin/sh", "-c", COMMAND])?;
    put_below_a_cgroup(stasis, &three)?;
    three.run()?;
    let mut counts = Counts([100; 3]);
    counts.all_go_on(stasis)?;
    let cases: [(&str, Case); 12] = [
        ("a lock hangs", a_lock_hangs),
        ("a thread is traced", a_thread_is_traced),
        ("frozen above", a_cgroup_above_is_frozen),
        (
            "frozen above in the lock",
            a_cgroup_above_is_frozen_in_the_lock,
        ),
        (
            "frozen above and itself",
            above::one_that_is_paused_as_well_is_refused,
        ),
        ("frozen above in place", above::nothing_is_begun_in_place),
        ("stopped in the lock", one_is_stopped_in_the_lock),
        ("stopped in a lock alone", one_is_stopped_in_a_lock_alone),
        (
            "stopped in the gpu checkpoint",
            one_is_stopped_in_the_gpu_checkpoint,
        ),
        ("stopped after the gpu checkpoint", one_is_stopped_after_it),
        (
            "stopped in the gpu restore",
            one_is_stopped_in_the_gpu_restore,
        ),
        (
            "stopped while the caller has it frozen",
            one_is_stopped_in_a_frozen_container,
        ),
    ];
    for (name, case) in cases {
        case(stasis, &three, &mut counts).with_context(|| name.to_owned())?;
        stasis.inject("")?;
        until_nothing_waits(stasis).with_context(|| name.to_owned())?;
        counts.all_go_on(stasis).with_context(|| name.to_owned())?;
    }
    stasis.set("runc", "")?;
    three.checkpoint("good", &[])?;
    three.delete()?;
    three.restore("good")?;
    counts.all_go_on(stasis)?;
    stasis.set("runc", LIMITS)?;
    a_keeper_ends_with_its_container(stasis, &three)
}

type Case = fn(&StasisHost, &Bundle<'_>, &mut Counts) -> Result<()>;

/// A driver that does not answer although the process runs.
fn a_lock_hangs(stasis: &StasisHost, three: &Bundle<'_>, counts: &mut Counts) -> Result<()> {
    stasis.inject("lock b hang")?;
    let message = says_that_one_is_left(stasis, three.begin_checkpoint("hang", &[])?)?;
    assert_contains(&message, &["lock of process", "did not come back within"]);
    counts.go_on(stasis, &[0, 2])
}

/// The driver is not asked either about a process of which a debugger holds one thread.
fn a_thread_is_traced(stasis: &StasisHost, three: &Bundle<'_>, _: &mut Counts) -> Result<()> {
    let leader = stasis.host.outside(&second(stasis)?)?;
    let threads = std::fs::read_dir(format!("/proc/{leader}/task"))?;
    let threads = threads.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let thread = threads
        .map(Pid::from_raw)
        .find(|thread| *thread != leader)
        .context("it has one thread")?;
    ptrace::seize(thread, ptrace::Options::empty())?;
    ptrace::interrupt(thread)?;
    waitpid(thread, Some(WaitPidFlag::__WALL))?;
    let message = three.checkpoint_fails("traced", &[]);
    ptrace::detach(thread, None)?;
    let message = message?;
    assert_contains(
        &message,
        &["refused", "is stopped by a debugger", "nothing was changed"],
    );
    ensure!(stasis.keepers().is_empty());
    Ok(())
}

fn a_cgroup_above_is_frozen(stasis: &StasisHost, three: &Bundle<'_>, _: &mut Counts) -> Result<()> {
    set_above(stasis, FROZEN)?;
    let message = three.checkpoint_fails("above", &[]);
    set_above(stasis, THAWED)?;
    let message = message?;
    assert_contains(
        &message,
        &["refused", "a frozen cgroup above", "nothing was changed"],
    );
    Ok(())
}

fn a_cgroup_above_is_frozen_in_the_lock(
    stasis: &StasisHost,
    three: &Bundle<'_>,
    _: &mut Counts,
) -> Result<()> {
    stasis.inject("lock b slow:5000 1")?;
    let child = three.begin_checkpoint("above", &[])?;
    stasis.until_driver_is_called()?;
    set_above(stasis, FROZEN)?;
    let output = child.wait_with_output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_contains(
        &stderr,
        &[
            "its processes may not have their GPU yet",
            "a frozen cgroup above",
        ],
    );
    ensure!(!stasis.keepers().is_empty(), "{stderr}");
    set_above(stasis, THAWED)
}

/// The lock is under way in the process when that is stopped, and takes effect when that goes on.
fn one_is_stopped_in_the_lock(
    stasis: &StasisHost,
    three: &Bundle<'_>,
    counts: &mut Counts,
) -> Result<()> {
    stasis.inject("lock b slow:5000 1")?;
    let child = three.begin_checkpoint("lock", &[])?;
    stasis.until_driver_is_called()?;
    signal(stasis, "-STOP")?;
    let message = leaves_one_behind(stasis, child)?;
    ensure!(message.contains("it is stopped by a signal"), "{message}");
    counts.go_on(stasis, &[0, 2])?;
    // The next checkpoint is refused, and the keeper goes on waiting.
    let message = three.checkpoint_fails("next", &[])?;
    ensure!(
        message.contains("refused") && message.contains("it is stopped by a signal"),
        "{message}"
    );
    counts.go_on(stasis, &[0, 2])?;
    signal(stasis, "-CONT")
}

/// The same in a lock that stays: all go on in the end.
fn one_is_stopped_in_a_lock_alone(
    stasis: &StasisHost,
    three: &Bundle<'_>,
    _: &mut Counts,
) -> Result<()> {
    stasis.inject("lock b slow:5000 1")?;
    let mut lock = stasis.command(CUDA_CHECKPOINT);
    lock.args(["--action", "lock", "--container", &three.id, "--root", ROOT]);
    let child = lock.stderr(Stdio::piped()).spawn()?;
    stasis.until_driver_is_called()?;
    signal(stasis, "-STOP")?;
    let output = child.wait_with_output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_contains(&stderr, &["it is stopped by a signal", "state=waiting"]);
    signal(stasis, "-CONT")
}

fn one_is_stopped_in_the_gpu_checkpoint(
    stasis: &StasisHost,
    three: &Bundle<'_>,
    counts: &mut Counts,
) -> Result<()> {
    stasis.inject("checkpoint b slow:15000 1")?;
    let child = three.begin_checkpoint("gpu", &[])?;
    stasis.until_driver_is_called()?;
    signal(stasis, "-STOP")?;
    leaves_one_behind(stasis, child)?;
    counts.go_on(stasis, &[0, 2])?;
    signal(stasis, "-CONT")
}

/// The driver is done with b, and b is CHECKPOINTED when another process fails.
fn one_is_stopped_after_it(
    stasis: &StasisHost,
    three: &Bundle<'_>,
    counts: &mut Counts,
) -> Result<()> {
    stasis.hold_driver("checkpoint a", "late")?;
    stasis.add_order("checkpoint a error:801 1")?;
    let child = three.begin_checkpoint("after", &[])?;
    stasis.until_driver_is_called()?;
    wait_until_clear(|| {
        let on_gpu = stasis.gpu_processes()?;
        Ok((on_gpu != 1).then(|| format!("{on_gpu} processes are on the GPU")))
    })?;
    signal(stasis, "-STOP")?;
    stasis.let_driver_go("late")?;
    let message = leaves_one_behind(stasis, child)?;
    ensure!(message.contains("(801)"), "{message}");
    counts.go_on(stasis, &[0, 2])?;
    signal(stasis, "-CONT")
}

/// The image is complete, and the container is on its way back to the GPU.
fn one_is_stopped_in_the_gpu_restore(
    stasis: &StasisHost,
    three: &Bundle<'_>,
    counts: &mut Counts,
) -> Result<()> {
    stasis.inject("restore b slow:15000 1")?;
    let child = three.begin_checkpoint("complete", &["--leave-running"])?;
    stasis.until_driver_is_called()?;
    signal(stasis, "-STOP")?;
    let message = leaves_one_behind(stasis, child)?;
    assert_contains(&message, &["the image is complete and restores"]);
    ensure!(three.image_path("complete/stasis.json").exists());
    counts.go_on(stasis, &[0, 2])?;
    signal(stasis, "-CONT")
}

/// The caller's `resume` and the keeper do not disturb each other.
fn one_is_stopped_in_a_frozen_container(
    stasis: &StasisHost,
    three: &Bundle<'_>,
    counts: &mut Counts,
) -> Result<()> {
    three.pause()?;
    stasis.inject("checkpoint b slow:15000 1")?;
    let child = three.begin_checkpoint("frozen", &["--leave-running"])?;
    stasis.until_driver_is_called()?;
    signal(stasis, "-STOP")?;
    leaves_one_behind(stasis, child)?;
    assert_eq!(three.status()?, "paused");
    let resumed = three.runtime(&["resume", "three"]).output()?;
    let stderr = String::from_utf8_lossy(&resumed.stderr);
    ensure!(resumed.status.success() && stderr.is_empty(), "{stderr}");
    assert_eq!(three.status()?, "running");
    counts.go_on(stasis, &[0, 2])?;
    signal(stasis, "-CONT")
}

fn a_keeper_ends_with_its_container(stasis: &StasisHost, three: &Bundle<'_>) -> Result<()> {
    stasis.inject("lock b slow:5000 1")?;
    let child = three.begin_checkpoint("ends", &[])?;
    stasis.until_driver_is_called()?;
    signal(stasis, "-STOP")?;
    leaves_one_behind(stasis, child)?;
    // The keeper ends by itself, without a `delete` that removes the record.
    stasis.run(&["kill", "-KILL", &second(stasis)?])?;
    let init = stasis.run_for_text(&["pgrep", "-o", "-f", "^/bin/counter 10000"])?;
    stasis.run(&["kill", "-KILL", &init])?;
    until_nothing_waits(stasis)?;
    three.delete()
}
