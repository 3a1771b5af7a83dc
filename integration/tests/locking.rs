//! Processes that do not answer the driver: the checkpoint fails in bounded time, the other processes
//! go on, and the one in question goes on as soon as it can.

use std::path::PathBuf;
use std::process::Child;

use anyhow::{Context, Result, ensure};
use nix::sys::ptrace;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use serde_json::{Value, json};
use stasis_integration::bundle::Bundle;
use stasis_integration::deadline::until_none;
use stasis_integration::host::{Cgroups, Suite};
use stasis_integration::lab::{FAULTS, Lab};

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
    let cases: [(&str, Case); 8] = [
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

/// What the counters have counted to.
struct Counts([u32; 3]);

impl Counts {
    fn all_go_on(&mut self, lab: &Lab) -> Result<()> {
        self.go_on(lab, &[0, 1, 2])
    }

    /// Lets some count once; each has to be where it was.
    fn go_on(&mut self, lab: &Lab, which: &[u16]) -> Result<()> {
        for index in which {
            let answer = lab.ask_until_up(10000 + index)?;
            let count = &mut self.0[usize::from(*index)];
            *count += 1;
            ensure!(
                answer == count.to_string(),
                "{index}: {answer}, not {count}"
            );
        }
        Ok(())
    }
}

fn record(lab: &Lab) -> PathBuf {
    lab.host.path("/run/stasis/containers/%run%bundles/three")
}

fn guardians(lab: &Lab) -> String {
    let found = lab.host.run_for_text(&["pgrep", "-x", "stasis-guardian"]);
    found.unwrap_or_default()
}

fn until_nothing_waits(lab: &Lab) -> Result<()> {
    until_none(|| {
        let (left, recorded) = (guardians(lab), record(lab).exists());
        Ok(
            (recorded || !left.is_empty())
                .then(|| format!("guardians {left:?}, record {recorded}")),
        )
    })
}

/// Waits until the one order, which is for one call, has been taken.
fn until_taken(lab: &Lab) -> Result<()> {
    until_none(|| {
        let orders = std::fs::read_to_string(lab.host.path(FAULTS))?;
        Ok((!orders.contains(" 0\n")).then(|| format!("still ordered: {orders}")))
    })
}

/// The pid of the counter b in the host.
fn second(lab: &Lab) -> Result<String> {
    lab.host
        .run_for_text(&["pgrep", "-f", "^/bin/counter 10001"])
}

/// The pid, as this process sees it, of a process of the host that is in a container.
fn outside(lab: &Lab, inside: &str) -> Result<Pid> {
    for entry in std::fs::read_dir("/proc")? {
        let path = entry?.path();
        let read = |file| std::fs::read_to_string(path.join(file)).unwrap_or_default();
        let status = read("status");
        let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let mut pids = pids.unwrap_or_default().split_whitespace();
        let outermost = pids.next().and_then(|pid| pid.parse().ok());
        // Other hosts have processes of the same pid.
        if let (Some(pid), true) = (outermost, pids.next() == Some(inside))
            && read("cgroup").contains(lab.host.name())
        {
            return Ok(Pid::from_raw(pid));
        }
    }
    anyhow::bail!("no process {inside} in the host")
}

fn signal(lab: &Lab, name: &str) -> Result<()> {
    lab.host.run(&["kill", name, &second(lab)?]).map(drop)
}

/// The message of a checkpoint that has to fail and leave b to a guardian.
fn leaves_one_behind(lab: &Lab, child: Child) -> Result<String> {
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let guardian = guardians(lab);
    for part in [
        "the other processes of the container are as before, with their GPU",
        &format!("of process {} (counter)", second(lab)?),
        &format!("stasis process {guardian} waits"),
    ] {
        ensure!(said.contains(part), "{part:?} is missing in: {said}");
    }
    ensure!(!guardian.is_empty() && record(lab).exists(), "{said}");
    Ok(said)
}

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
    waitpid(thread, Some(nix::sys::wait::WaitPidFlag::__WALL))?;
    let said = three.checkpoint_fails("traced", &[]);
    ptrace::detach(thread, None)?;
    let said = said?;
    for part in ["refused", "is stopped by a debugger", "nothing was changed"] {
        ensure!(said.contains(part), "{part:?} is missing in: {said}");
    }
    ensure!(guardians(lab).is_empty());
    Ok(())
}

/// The container's cgroup becomes /held/three.
fn put_below_a_cgroup(lab: &Lab, three: &Bundle<'_>) -> Result<()> {
    let path = lab.host.path(format!("{}/config.json", three.directory()));
    let mut spec: Value = serde_json::from_str(&std::fs::read_to_string(&path)?)?;
    spec["linux"]["cgroupsPath"] = json!("/held/three");
    Ok(std::fs::write(path, spec.to_string())?)
}

/// Freezes or thaws the cgroup above the container's.
fn set_above(lab: &Lab, [v1, v2]: [&str; 2]) -> Result<()> {
    let script = format!(
        "cd /sys/fs/cgroup/freezer/held 2>/dev/null && echo {v1} >freezer.state || \
         echo {v2} >/sys/fs/cgroup/held/cgroup.freeze"
    );
    lab.host.run(&["bash", "-c", &script]).map(drop)
}

const FROZEN: [&str; 2] = ["FROZEN", "1"];
const THAWED: [&str; 2] = ["THAWED", "0"];

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
