//! Processes that do not answer the driver: the checkpoint fails in bounded time, the other processes
//! go on, and the one in question goes on as soon as it can.

mod scene;

use anyhow::{Context, Result, ensure};
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use scene::{
    Counts, FROZEN, THAWED, guardians, leaves_one_behind, outside, put_below_a_cgroup, second,
    set_above, signal, until_nothing_waits, until_taken,
};
use stasis_integration::bundle::Bundle;
use stasis_integration::deadline::until_none;
use stasis_integration::host::{Cgroups, Suite};
use stasis_integration::lab::Lab;

/// Three counters, each by itself; faults name them a, b and c.
const COMMAND: &str = "STASIS_TAG=b /bin/counter 10001 & STASIS_TAG=c /bin/counter 10002 & \
                       STASIS_TAG=a exec /bin/counter 10000";
const LIMITS: &str = "[deadlines]\nlock_ms = 500\nlock_try_ms = 50\ndriver_s = 20\n";

#[test]
fn on_hybrid_cgroups() -> Result<()> {
    all_cases(&Lab::start(Suite::Sid, Cgroups::oldest()?, "runc")?)
}

#[test]
fn on_cgroups_v2() -> Result<()> {
    all_cases(&Lab::start(Suite::Trixie, Cgroups::V2, "runc")?)
}

fn all_cases(lab: &Lab) -> Result<()> {
    let _containerd = lab.containerd()?;
    lab.set("runc", LIMITS)?;
    let three = Bundle::make(lab, "three", &["/bin/sh", "-c", COMMAND])?;
    put_below_a_cgroup(lab, &three)?;
    three.run()?;
    let mut counts = Counts([100; 3]);
    counts.all_go_on(lab)?;
    let cases: [(&str, Case); 9] = [
        ("a lock hangs", a_lock_hangs),
        ("a thread is traced", a_thread_is_traced),
        ("frozen above", a_cgroup_above_is_frozen),
        (
            "frozen above in the lock",
            a_cgroup_above_is_frozen_in_the_lock,
        ),
        ("stopped in the lock", one_is_stopped_in_the_lock),
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
        case(lab, &three, &mut counts).with_context(|| name.to_owned())?;
        lab.order("")?;
        until_nothing_waits(lab).with_context(|| name.to_owned())?;
        counts.all_go_on(lab).with_context(|| name.to_owned())?;
    }
    three.checkpoint("good", &[])?;
    three.delete()?;
    three.restore("good")?;
    counts.all_go_on(lab)?;
    a_guardian_ends_with_its_container(lab, &three)
}

type Case = fn(&Lab, &Bundle<'_>, &mut Counts) -> Result<()>;

/// A driver that does not answer although the process runs.
fn a_lock_hangs(lab: &Lab, three: &Bundle<'_>, counts: &mut Counts) -> Result<()> {
    lab.order("lock b hang")?;
    let said = leaves_one_behind(lab, three.begin_checkpoint("hang", &[])?)?;
    ensure!(said.contains("lock of process"), "{said}");
    ensure!(said.contains("did not come back within"), "{said}");
    counts.go_on(lab, &[0, 2])
}

/// Neither is the driver asked about a process of which a debugger holds one thread.
fn a_thread_is_traced(lab: &Lab, three: &Bundle<'_>, _: &mut Counts) -> Result<()> {
    let leader = outside(lab, &second(lab)?)?;
    let threads = std::fs::read_dir(format!("/proc/{leader}/task"))?;
    let threads = threads.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let thread = threads
        .map(Pid::from_raw)
        .find(|thread| *thread != leader)
        .context("it has one thread")?;
    ptrace::seize(thread, ptrace::Options::empty())?;
    ptrace::interrupt(thread)?;
    waitpid(thread, Some(WaitPidFlag::__WALL))?;
    let said = three.checkpoint_fails("traced", &[]);
    ptrace::detach(thread, None)?;
    let said = said?;
    for part in ["refused", "is stopped by a debugger", "nothing was changed"] {
        ensure!(said.contains(part), "{part:?} is missing in: {said}");
    }
    ensure!(guardians(lab).is_empty());
    Ok(())
}

fn a_cgroup_above_is_frozen(lab: &Lab, three: &Bundle<'_>, _: &mut Counts) -> Result<()> {
    set_above(lab, FROZEN)?;
    let said = three.checkpoint_fails("above", &[]);
    set_above(lab, THAWED)?;
    let said = said?;
    for part in ["refused", "a frozen cgroup above", "nothing was changed"] {
        ensure!(said.contains(part), "{part:?} is missing in: {said}");
    }
    Ok(())
}

fn a_cgroup_above_is_frozen_in_the_lock(
    lab: &Lab,
    three: &Bundle<'_>,
    _: &mut Counts,
) -> Result<()> {
    lab.order("lock b slow:1000 1")?;
    let child = three.begin_checkpoint("above", &[])?;
    until_taken(lab)?;
    set_above(lab, FROZEN)?;
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        said.contains("its processes may not have their GPU yet"),
        "{said}"
    );
    ensure!(said.contains("a frozen cgroup above"), "{said}");
    ensure!(!guardians(lab).is_empty(), "{said}");
    set_above(lab, THAWED)
}

/// The lock is under way in the process when that is stopped, and takes effect when it goes on.
fn one_is_stopped_in_the_lock(lab: &Lab, three: &Bundle<'_>, counts: &mut Counts) -> Result<()> {
    lab.order("lock b slow:1000 1")?;
    let child = three.begin_checkpoint("lock", &[])?;
    until_taken(lab)?;
    signal(lab, "-STOP")?;
    let said = leaves_one_behind(lab, child)?;
    ensure!(said.contains("it is stopped by a signal"), "{said}");
    counts.go_on(lab, &[0, 2])?;
    // The next one is refused, and changes nothing about who waits.
    let said = three.checkpoint_fails("next", &[])?;
    ensure!(
        said.contains("refused") && said.contains("it is stopped by a signal"),
        "{said}"
    );
    counts.go_on(lab, &[0, 2])?;
    signal(lab, "-CONT")
}

fn one_is_stopped_in_the_gpu_checkpoint(
    lab: &Lab,
    three: &Bundle<'_>,
    counts: &mut Counts,
) -> Result<()> {
    lab.order("checkpoint b slow:1000 1")?;
    let child = three.begin_checkpoint("gpu", &[])?;
    until_taken(lab)?;
    signal(lab, "-STOP")?;
    leaves_one_behind(lab, child)?;
    counts.go_on(lab, &[0, 2])?;
    signal(lab, "-CONT")
}

/// The driver has nothing to do with b any more, and b is CHECKPOINTED when another fails.
fn one_is_stopped_after_it(lab: &Lab, three: &Bundle<'_>, counts: &mut Counts) -> Result<()> {
    lab.order("checkpoint a slow:1500 1\ncheckpoint a error:801 1")?;
    let child = three.begin_checkpoint("after", &[])?;
    until_taken(lab)?;
    until_none(|| {
        let on_gpu = lab.gpu_processes()?;
        Ok((on_gpu != 1).then(|| format!("{on_gpu} processes are on the GPU")))
    })?;
    signal(lab, "-STOP")?;
    let said = leaves_one_behind(lab, child)?;
    ensure!(said.contains("(801)"), "{said}");
    counts.go_on(lab, &[0, 2])?;
    signal(lab, "-CONT")
}

/// The image is there, and the container is on its way back to the GPU.
fn one_is_stopped_in_the_gpu_restore(
    lab: &Lab,
    three: &Bundle<'_>,
    counts: &mut Counts,
) -> Result<()> {
    lab.order("restore b slow:1000 1")?;
    let child = three.begin_checkpoint("complete", &["--leave-running"])?;
    until_taken(lab)?;
    signal(lab, "-STOP")?;
    let said = leaves_one_behind(lab, child)?;
    ensure!(
        said.contains("the image is complete and restores"),
        "{said}"
    );
    ensure!(three.image_path("complete/stasis.json").exists());
    counts.go_on(lab, &[0, 2])?;
    signal(lab, "-CONT")
}

/// The caller's `resume` and the guardian get on with each other.
fn one_is_stopped_in_a_frozen_container(
    lab: &Lab,
    three: &Bundle<'_>,
    counts: &mut Counts,
) -> Result<()> {
    ensure!(three.runtime(&["pause", "three"]).status()?.success());
    lab.order("checkpoint b slow:1000 1")?;
    let child = three.begin_checkpoint("frozen", &["--leave-running"])?;
    until_taken(lab)?;
    signal(lab, "-STOP")?;
    leaves_one_behind(lab, child)?;
    assert_eq!(three.status()?, "paused");
    let resumed = three.runtime(&["resume", "three"]).output()?;
    let said = String::from_utf8_lossy(&resumed.stderr);
    ensure!(resumed.status.success() && said.is_empty(), "{said}");
    assert_eq!(three.status()?, "running");
    counts.go_on(lab, &[0, 2])?;
    signal(lab, "-CONT")
}

fn a_guardian_ends_with_its_container(lab: &Lab, three: &Bundle<'_>) -> Result<()> {
    lab.order("lock b slow:1000 1")?;
    let child = three.begin_checkpoint("ends", &[])?;
    until_taken(lab)?;
    signal(lab, "-STOP")?;
    leaves_one_behind(lab, child)?;
    // By itself, and when nobody forgets the record for it.
    lab.host.run(&["kill", "-KILL", &second(lab)?])?;
    let init = lab
        .host
        .run_for_text(&["pgrep", "-f", "^/bin/counter 10000"])?;
    lab.host.run(&["kill", "-KILL", &init])?;
    until_nothing_waits(lab)?;
    three.delete()
}
