//! The shim as Kubernetes uses it: pods of containerd's CRI plugin, with the settings that ship.

use std::fs;

use anyhow::{Context, Result};
use stasis_integration::cri::{ContainerConfig, ContainerState, Cri, on_a_node};
use stasis_integration::deadline::until_none;
use stasis_integration::host::{Cgroups, Suite};
use stasis_integration::lab::Lab;
use stasis_integration::shim::Shim;

const CHECKS: [fn(&Lab, &Cri) -> Result<()>; 5] = [
    one_shim_serves_a_pod,
    commands_run_in_a_container,
    ends_are_reported,
    usage_is_measured,
    killed_shim_ends_its_pod,
];

#[test]
fn trixie() -> Result<()> {
    on_a_node(Suite::Trixie, &CHECKS)?;
    pods_outlive_containerd(Suite::Trixie)
}

#[test]
fn sid() -> Result<()> {
    on_a_node(Suite::Sid, &CHECKS)?;
    pods_outlive_containerd(Suite::Sid)
}

fn waiting(name: &str) -> ContainerConfig {
    ContainerConfig::new(name, &["/bin/pause"])
}

/// The pod and its containers are all children of one process, which is the shim that the settings name.
fn one_shim_serves_a_pod(lab: &Lab, cri: &Cri) -> Result<()> {
    let pod = cri.pod("shared")?;
    let first = pod.run(&waiting("first"))?;
    let second = pod.run(&waiting("second"))?;
    let shims = lab.shims()?;
    assert_eq!(shims.len(), 1, "{shims:?}");
    let program = fs::read_link(lab.host.path(format!("/proc/{}/exe", shims[0])))?;
    assert!(
        program.ends_with(Shim::under_test().program()),
        "{program:?}"
    );
    for pid in [pod.pid, first.pid, second.pid] {
        assert_eq!(lab.parent(pid)?, shims[0]);
    }

    // Another pod gets a shim of its own.
    let other = cri.pod("other")?;
    assert_eq!(lab.shims()?.len(), 2);
    other.remove()?;

    // What ends in a pod leaves the rest of it alone.
    cri.stop(&first.id, 10)?;
    cri.remove(&first.id)?;
    assert!(!lab.lives(first.pid));
    assert_eq!(cri.status(&second.id)?.state(), ContainerState::Running);
    assert!(lab.lives(second.pid) && lab.lives(pod.pid));
    let ids = [pod.id.clone(), first.id, second.id];
    pod.remove()?;
    lab.nothing_left_of(&ids.each_ref().map(String::as_str))
}

fn commands_run_in_a_container(lab: &Lab, cri: &Cri) -> Result<()> {
    let pod = cri.pod("exec")?;
    let container = pod.run(&waiting("waiting"))?;
    let script = "echo said; echo complained >&2; cat /proc/1/comm; exit 3";
    let executed = cri.exec(&container.id, &["sh", "-c", script])?;
    assert_eq!(executed.stdout, b"said\npause\n");
    assert_eq!(executed.stderr, b"complained\n");
    assert_eq!(executed.exit_code, 3);
    let missing = cri.exec(&container.id, &["/bin/no-such-program"]);
    assert!(
        format!("{missing:?}").contains("no-such-program"),
        "{missing:?}"
    );
    // More than a pipe holds.
    let much = cri.exec(&container.id, &["sh", "-c", "yes | head -c 1000000"])?;
    assert_eq!((much.stdout.len(), much.exit_code), (1_000_000, 0));
    pod.remove()?;
    lab.nothing_left_of(&[&container.id])
}

fn ends_are_reported(lab: &Lab, cri: &Cri) -> Result<()> {
    let pod = cri.pod("ends")?;
    let itself = pod.run(&ContainerConfig::new(
        "itself",
        &["sh", "-c", "echo bye; exit 7"],
    ))?;
    let ended = cri.wait(&itself.id)?;
    assert_eq!((ended.exit_code, ended.reason.as_str()), (7, "Error"));
    assert!(ended.finished_at > 0);
    let log = fs::read_to_string(lab.host.path(pod.log("itself")))?;
    assert!(log.ends_with(" stdout F bye\n"), "{log}");

    let asked = pod.run(&waiting("asked"))?;
    cri.stop(&asked.id, 30)?;
    let ended = cri.status(&asked.id)?;
    assert_eq!((ended.exit_code, ended.reason.as_str()), (0, "Completed"));

    // The kernel spares the first process of a pid namespace the signals that it has no handler for.
    let deaf = pod.run(&ContainerConfig::new("deaf", &["tail", "-f", "/dev/null"]))?;
    cri.stop(&deaf.id, 1)?;
    assert_eq!(cri.status(&deaf.id)?.exit_code, 137);

    let missing = pod.run(&ContainerConfig::new("missing", &["/bin/no-such-program"]));
    assert!(
        format!("{missing:?}").contains("no-such-program"),
        "{missing:?}"
    );
    let ids = [pod.id.clone(), itself.id, asked.id, deaf.id];
    pod.remove()?;
    lab.nothing_left_of(&ids.each_ref().map(String::as_str))
}

/// Where nothing but version 2 is mounted, a test host of a machine that also has version 1 has no
/// controllers; so this runs where [`Cgroups::oldest`] is.
fn usage_is_measured(lab: &Lab, cri: &Cri) -> Result<()> {
    let pod = cri.pod("usage")?;
    let container = pod.run(&waiting("measured"))?;
    let before = cpu(cri, &container.id)?;
    cri.exec(
        &container.id,
        &[
            "sh",
            "-c",
            "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done",
        ],
    )?;
    let after = cpu(cri, &container.id)?;
    assert!(before > 0 && after > before, "{before} ns, then {after} ns");
    let memory = cri.stats(&container.id)?.memory.context("no memory")?;
    let used = memory.working_set_bytes.context("no working set")?.value;
    assert!((1..1 << 30).contains(&used), "{used} bytes");

    let greedy = ContainerConfig::new("greedy", &["tail", "/dev/zero"]);
    let greedy = pod.run(&greedy.with_memory_limit(32 << 20))?;
    let ended = cri.wait(&greedy.id)?;
    assert_eq!(ended.exit_code, 137);
    // containerd hears of the end and of the reason in any order.
    until_none(|| {
        let reason = cri.status(&greedy.id)?.reason;
        Ok((reason != "OOMKilled").then_some(reason))
    })?;
    pod.remove()?;
    lab.nothing_left_of(&[&container.id, &greedy.id])
}

fn cpu(cri: &Cri, id: &str) -> Result<u64> {
    let cpu = cri.stats(id)?.cpu.context("no processor time")?;
    Ok(cpu.usage_core_nano_seconds.context("not counted")?.value)
}

/// What containerd then calls, the shim's program with `delete`, ends and cleans up every container.
fn killed_shim_ends_its_pod(lab: &Lab, cri: &Cri) -> Result<()> {
    if Shim::under_test() == Shim::Go {
        eprintln!(
            "not run: of containerd's own shim a socket stays (1.7), or the container's process (2.1)"
        );
        return Ok(());
    }
    let pod = cri.pod("orphaned")?;
    let container = pod.run(&waiting("orphan"))?;
    let shim = lab.parent(container.pid)?;
    lab.host.run(&["kill", "-KILL", &shim.to_string()])?;
    // CRI's own wait for the end breaks off, which it reports so, with containerd's own shim, too.
    assert_eq!(cri.wait(&container.id)?.exit_code, 255);
    until_none(|| {
        let alive = [pod.pid, container.pid]
            .into_iter()
            .find(|&pid| lab.lives(pid));
        Ok(alive.map(|pid| format!("{pid} lives")))
    })?;
    let ids = [pod.id.clone(), container.id];
    pod.remove()?;
    lab.nothing_left_of(&ids.each_ref().map(String::as_str))
}

/// containerd can be restarted beside pods, and what ended meanwhile has ended for the next one.
fn pods_outlive_containerd(suite: Suite) -> Result<()> {
    let lab = Lab::start(suite, Cgroups::oldest()?, "runc")?;
    let node = lab.node(suite)?;
    let cri = Cri::connect(&lab.host)?;
    cri.pull()?;
    let pod = cri.pod("outlives")?;
    let going_on = pod.run(&waiting("going-on"))?;
    let ending = pod.run(&waiting("ending"))?;
    node.daemon.kill()?;
    lab.host.run(&["kill", "-KILL", &ending.pid.to_string()])?;
    until_none(|| Ok(lab.lives(ending.pid).then(|| "it lives".to_owned())))?;

    let _containerd = lab.host.containerd()?;
    let cri = Cri::connect(&lab.host)?;
    // containerd takes a task without a process for a leaked one and deletes it unasked. So CRI has
    // to say 255, with containerd's own shim, too.
    assert_eq!(cri.wait(&ending.id)?.exit_code, 255);
    assert_eq!(cri.status(&going_on.id)?.state(), ContainerState::Running);
    assert_eq!(cri.exec(&going_on.id, &["echo", "yes"])?.stdout, b"yes\n");
    assert_eq!(lab.shims()?.len(), 1);
    cri.stop(&going_on.id, 30)?;
    assert_eq!(cri.status(&going_on.id)?.exit_code, 0);
    cri.remove_pod(&pod.id)?;
    lab.nothing_left_of(&[&pod.id, &going_on.id, &ending.id])
}
