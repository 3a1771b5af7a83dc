//! The shim as Kubernetes uses it: pods of containerd's CRI plugin, with the shipped settings.

use std::fs;

use anyhow::{Context, Result};
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::client::cri::{ContainerConfig, ContainerState, Cri, on_a_node};
use stasis_integration::client::shim::Shim;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::{needs, on_hosts};

on_hosts!(on_a_node [
    one_shim_serves_a_pod,
    commands_run_in_a_container,
    ends_are_reported,
    usage_is_measured,
    killed_shim_ends_its_pod,
]: trixie, sid);

mod with_a_new_containerd {
    stasis_integration::on_hosts!(super::pods_outlive_containerd: trixie, sid);
}

mod with_an_image_for_all {
    stasis_integration::on_hosts!(super::image_for_all_is_ignored: trixie, sid);
}

fn waiting(name: &str) -> ContainerConfig {
    ContainerConfig::new(name, &["/bin/pause"])
}

/// The pod and its containers are all children of one process, the shim that the settings name.
fn one_shim_serves_a_pod(stasis: &StasisHost, cri: &Cri) -> Result<()> {
    let pod = cri.pod("shared")?;
    let first = pod.run(&waiting("first"))?;
    let second = pod.run(&waiting("second"))?;
    let shims = stasis.shims()?;
    assert_eq!(shims.len(), 1, "{shims:?}");
    let program = fs::read_link(stasis.path(format!("/proc/{}/exe", shims[0])))?;
    assert!(
        program.ends_with(Shim::under_test().program()),
        "{program:?}"
    );
    for pid in [pod.pid, first.pid, second.pid] {
        assert_eq!(stasis.parent(pid)?, shims[0]);
    }

    // Another pod gets a shim of its own.
    let other = cri.pod("other")?;
    assert_eq!(stasis.shims()?.len(), 2);
    other.remove()?;

    // The end of a container leaves the rest of its pod alone.
    cri.stop(&first.id, 10)?;
    cri.remove(&first.id)?;
    assert!(!stasis.lives(first.pid));
    assert_eq!(cri.status(&second.id)?.state(), ContainerState::Running);
    assert!(stasis.lives(second.pid) && stasis.lives(pod.pid));
    let ids = [pod.id.clone(), first.id, second.id];
    pod.remove()?;
    stasis.nothing_left_of(&ids.each_ref().map(String::as_str))
}

fn commands_run_in_a_container(stasis: &StasisHost, cri: &Cri) -> Result<()> {
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
    stasis.nothing_left_of(&[&container.id])
}

fn ends_are_reported(stasis: &StasisHost, cri: &Cri) -> Result<()> {
    let pod = cri.pod("ends")?;
    let itself = pod.run(&ContainerConfig::new(
        "itself",
        &["sh", "-c", "echo bye; exit 7"],
    ))?;
    let ended = cri.wait(&itself.id)?;
    assert_eq!((ended.exit_code, ended.reason.as_str()), (7, "Error"));
    assert!(ended.finished_at > 0);
    let log = fs::read_to_string(stasis.path(pod.log("itself")))?;
    assert!(log.ends_with(" stdout F bye\n"), "{log}");

    let asked = pod.run(&waiting("asked"))?;
    // Before the handler is installed, the kernel spares it the signal (below). SIGTERM is bit 14.
    let caught = "0x$(sed -n 's/^SigCgt:.//p' /proc/1/status)";
    let until_ready = format!("while [ $(({caught} & 0x4000)) = 0 ]; do :; done");
    assert_eq!(
        cri.exec(&asked.id, &["sh", "-c", &until_ready])?.exit_code,
        0
    );
    cri.stop(&asked.id, 30)?;
    let ended = cri.status(&asked.id)?;
    assert_eq!((ended.exit_code, ended.reason.as_str()), (0, "Completed"));

    // The kernel spares the first process of a pid namespace the signals that it has no handler
    // for.
    let deaf = pod.run(&ContainerConfig::new("deaf", &["tail", "-f", "/dev/null"]))?;
    // Before the exec it is runc, whose Go runtime ends it with status 2.
    let until_exec = "until [ \"$(cat /proc/1/comm)\" = tail ]; do :; done";
    let executed = cri.exec(&deaf.id, &["sh", "-c", until_exec])?;
    assert_eq!(executed.exit_code, 0);
    cri.stop(&deaf.id, 1)?;
    assert_eq!(cri.status(&deaf.id)?.exit_code, 137);

    let missing = pod.run(&ContainerConfig::new("missing", &["/bin/no-such-program"]));
    assert!(
        format!("{missing:?}").contains("no-such-program"),
        "{missing:?}"
    );
    let ids = [pod.id.clone(), itself.id, asked.id, deaf.id];
    pod.remove()?;
    stasis.nothing_left_of(&ids.each_ref().map(String::as_str))
}

/// A test host with version 2 alone, on a machine that also has version 1, has no controllers; so
/// this runs where [`Cgroups::oldest`] is.
fn usage_is_measured(stasis: &StasisHost, cri: &Cri) -> Result<()> {
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
    // containerd learns of the end and of the reason in any order.
    wait_until_clear(|| {
        let reason = cri.status(&greedy.id)?.reason;
        Ok((reason != "OOMKilled").then_some(reason))
    })?;
    pod.remove()?;
    stasis.nothing_left_of(&[&container.id, &greedy.id])
}

fn cpu(cri: &Cri, id: &str) -> Result<u64> {
    let cpu = cri.stats(id)?.cpu.context("no processor time")?;
    Ok(cpu.usage_core_nano_seconds.context("not counted")?.value)
}

/// containerd then calls the shim's program with `delete`, which ends and cleans up every
/// container.
fn killed_shim_ends_its_pod(stasis: &StasisHost, cri: &Cri) -> Result<()> {
    // containerd's own shim leaves a socket (1.7), or the container's process (2.1).
    needs!(OurShim);
    let pod = cri.pod("orphaned")?;
    let container = pod.run(&waiting("orphan"))?;
    let shim = stasis.parent(container.pid)?;
    stasis.run(&["kill", "-KILL", &shim.to_string()])?;
    // CRI's own wait for the end breaks off, with this report, with containerd's own shim, too.
    assert_eq!(cri.wait(&container.id)?.exit_code, 255);
    wait_until_clear(|| {
        let alive = [pod.pid, container.pid]
            .into_iter()
            .find(|&pid| stasis.lives(pid));
        Ok(alive.map(|pid| format!("{pid} lives")))
    })?;
    let ids = [pod.id.clone(), container.id];
    pod.remove()?;
    stasis.nothing_left_of(&ids.each_ref().map(String::as_str))
}

/// containerd can be restarted beside pods, and the next one knows which containers have ended.
fn pods_outlive_containerd(kind: HostKind) -> Result<()> {
    let stasis = StasisHost::of(kind)?;
    let node = stasis.node(kind.suite)?;
    let cri = Cri::connect(&stasis.host)?;
    cri.pull()?;
    let pod = cri.pod("outlives")?;
    let going_on = pod.run(&waiting("going-on"))?;
    let ending = pod.run(&waiting("ending"))?;
    node.daemon.kill()?;
    stasis.run(&["kill", "-KILL", &ending.pid.to_string()])?;
    stasis.until_gone(ending.pid)?;

    let _containerd = stasis.host.containerd()?;
    let cri = Cri::connect(&stasis.host)?;
    // containerd takes a task without a process for a leaked one and deletes it unasked. So CRI has
    // to report 255, with containerd's own shim, too.
    assert_eq!(cri.wait(&ending.id)?.exit_code, 255);
    assert_eq!(cri.status(&going_on.id)?.state(), ContainerState::Running);
    assert_eq!(cri.exec(&going_on.id, &["echo", "yes"])?.stdout, b"yes\n");
    assert_eq!(stasis.shims()?.len(), 1);
    cri.stop(&going_on.id, 30)?;
    assert_eq!(cri.status(&going_on.id)?.exit_code, 0);
    cri.remove_pod(&pod.id)?;
    stasis.nothing_left_of(&[&pod.id, &going_on.id, &ending.id])
}

/// A mistake in the settings must not make every container a restore, nor the sandbox.
fn image_for_all_is_ignored(kind: HostKind) -> Result<()> {
    let stasis = StasisHost::of(kind)?;
    let _node = stasis.node_with(kind.suite, "CriuImagePath = \"/images\"")?;
    let cri = Cri::connect(&stasis.host)?;
    cri.pull()?;
    let pod = cri.pod("made-anew")?;
    let container = pod.run(&waiting("too"))?;
    assert_eq!(cri.status(&container.id)?.state(), ContainerState::Running);
    let ids = [pod.id.clone(), container.id];
    pod.remove()?;
    stasis.nothing_left_of(&ids.each_ref().map(String::as_str))
}
