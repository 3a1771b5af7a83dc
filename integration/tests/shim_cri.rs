//! The shim as Kubernetes uses it: pods of containerd's CRI plugin, with the settings that ship.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result};
use stasis_integration::containerd::{Code, code};
use stasis_integration::cri::{ContainerConfig, ContainerState, Cri, Node, Pod};
use stasis_integration::deadline::until_none;
use stasis_integration::host::{Cgroups, Suite};
use stasis_integration::lab::Lab;
use stasis_integration::shim::Shim;

const ARCHIVE: &str = "/images/checkpoint.tar";

#[test]
fn trixie() -> Result<()> {
    on_a_node(Suite::Trixie, &[containerd_1_has_no_checkpoint])
}

#[test]
fn sid() -> Result<()> {
    on_a_node(
        Suite::Sid,
        &[
            checkpoint_becomes_an_archive,
            archive_is_restored_in_another_pod,
            why_a_checkpoint_fails_is_told,
        ],
    )
}

type Check = fn(&Lab, &Cri) -> Result<()>;

fn on_a_node(suite: Suite, of_this_containerd: &[Check]) -> Result<()> {
    let cgroups = Cgroups::oldest()?;
    let lab = Lab::start(suite, cgroups, "runc")?;
    let node = lab.node(suite)?;
    let cri = Cri::connect(&lab.host)?;
    cri.pull()?;
    let of_all: [Check; 4] = [
        one_shim_serves_a_pod,
        commands_run_in_a_container,
        ends_are_reported,
        usage_is_measured,
    ];
    for check in of_all.iter().chain(of_this_containerd) {
        check(&lab, &cri).inspect_err(|_| {
            println!("{}", node.daemon.log().unwrap_or_default());
        })?;
    }
    pods_outlive_containerd(&lab, &cri, node)
}

fn waiting(name: &str) -> ContainerConfig {
    ContainerConfig::new(name, &["/bin/pause"])
}

fn counter(port: &str) -> ContainerConfig {
    ContainerConfig::new("counter", &["/bin/counter", port]).with_gpu("counter")
}

/// What the kernel says of a process of the host: its parent.
fn parent(lab: &Lab, pid: u32) -> Result<u32> {
    let status = fs::read_to_string(lab.host.path(format!("/proc/{pid}/status")))?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    Ok(line.context("a process without a parent")?.trim().parse()?)
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
        assert_eq!(parent(lab, pid)?, shims[0]);
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

fn containerd_1_has_no_checkpoint(lab: &Lab, cri: &Cri) -> Result<()> {
    let pod = cri.pod("checkpoint")?;
    let container = pod.run(&counter("10000"))?;
    assert_eq!(lab.ask_until_up(10000)?, "101");
    let refused = cri.checkpoint(&container.id, ARCHIVE);
    assert_eq!(code(&refused), Code::Unimplemented);
    assert_eq!(lab.ask(10000)?.as_deref(), Some("102"));
    pod.remove()?;
    lab.nothing_left_of(&[&container.id])
}

/// The container goes on, and is restored beside the pod's other containers by the same shim.
fn checkpoint_becomes_an_archive(lab: &Lab, cri: &Cri) -> Result<()> {
    let pod = cri.pod("checkpoint")?;
    let neighbour = pod.run(&waiting("neighbour"))?;
    let container = pod.run(&counter("10000"))?;
    assert_eq!(lab.ask_until_up(10000)?, "101");
    cri.exec(&container.id, &["sh", "-c", "echo kept >/root/file"])?;
    cri.checkpoint(&container.id, ARCHIVE)?;
    assert_eq!(lab.ask(10000)?.as_deref(), Some("102"));
    assert_eq!(lab.last_operation()?["operation"], "resume");

    let files = lab.host.run_for_text(&["tar", "tf", ARCHIVE])?;
    let files: BTreeSet<_> = files.lines().collect();
    for file in ["stasis.json", "inventory.img", "descriptors.json"] {
        assert!(
            files.contains(format!("checkpoint/{file}").as_str()),
            "{files:?}"
        );
    }
    let manifest = ["tar", "xOf", ARCHIVE, "checkpoint/stasis.json"];
    let manifest: serde_json::Value = serde_json::from_str(&lab.host.run_for_text(&manifest)?)?;
    assert_eq!(manifest["container"], container.id);

    // Another archive of the same container, into the same place.
    cri.checkpoint(&container.id, ARCHIVE)?;
    assert_eq!(lab.ask(10000)?.as_deref(), Some("103"));
    cri.stop(&container.id, 10)?;
    cri.remove(&container.id)?;
    assert_eq!(lab.ask(10000)?, None);

    let restored = is_restored(lab, cri, &pod, "103")?;
    assert_eq!(lab.shims()?.len(), 1);
    assert!(lab.lives(neighbour.pid));
    pod.remove()?;
    lab.nothing_left_of(&[&container.id, &restored, &neighbour.id])
}

/// A pod of another name on a node where nothing of the old one is left, as after a migration.
fn archive_is_restored_in_another_pod(lab: &Lab, cri: &Cri) -> Result<()> {
    let pod = cri.pod("migrated")?;
    let restored = is_restored(lab, cri, &pod, "103")?;
    pod.remove()?;
    lab.nothing_left_of(&[&restored])
}

/// Restores the archive's counter, which has to count on; its id.
fn is_restored(lab: &Lab, cri: &Cri, pod: &Pod<'_>, next: &str) -> Result<String> {
    let restored = pod.run(&counter("10000").with_image(ARCHIVE))?;
    assert_eq!(lab.ask(10000)?.as_deref(), Some(next));
    assert_eq!(lab.last_operation()?["operation"], "restore");
    assert_eq!(parent(lab, restored.pid)?, lab.shims()?[0]);
    assert_eq!(cri.status(&restored.id)?.state(), ContainerState::Running);
    let file = cri.exec(&restored.id, &["cat", "/root/file"])?;
    assert_eq!(file.stdout, b"kept\n");
    cri.stop(&restored.id, 10)?;
    let ended = cri.status(&restored.id)?;
    assert_eq!((ended.exit_code, ended.reason.as_str()), (0, "Completed"));
    assert!(!lab.lives(restored.pid));
    Ok(restored.id)
}

fn why_a_checkpoint_fails_is_told(lab: &Lab, cri: &Cri) -> Result<()> {
    let pod = cri.pod("refused")?;
    let container = pod.run(&counter("10001"))?;
    assert_eq!(lab.ask_until_up(10001)?, "101");
    lab.order("lock counter busy")?;
    lab.set("runc", "[deadlines]\nlock_ms = 500\nlock_try_ms = 50\n")?;
    let refused = cri.checkpoint(&container.id, "/images/refused.tar");
    let said = format!("{refused:?}");
    assert!(said.contains("lock of process"), "{said}");
    assert!(
        said.contains("the container is paused as before, with its GPU"),
        "{said}"
    );
    assert_eq!(lab.ask(10001)?.as_deref(), Some("102"));
    assert_eq!(cri.status(&container.id)?.state(), ContainerState::Running);
    lab.order("")?;
    lab.set("runc", "")?;
    cri.checkpoint(&container.id, "/images/accepted.tar")?;
    assert_eq!(lab.ask(10001)?.as_deref(), Some("103"));
    pod.remove()?;
    lab.nothing_left_of(&[&container.id])
}

/// What ends while there is no containerd is known to the next one.
fn pods_outlive_containerd(lab: &Lab, cri: &Cri, node: Node<'_>) -> Result<()> {
    let pod = cri.pod("outlives")?;
    let going_on = pod.run(&waiting("going-on"))?;
    let ending = pod.run(&waiting("ending"))?;
    node.daemon.kill()?;
    lab.host.run(&["kill", "-KILL", &ending.pid.to_string()])?;
    until_none(|| Ok(lab.lives(ending.pid).then(|| "it lives".to_owned())))?;

    let _containerd = lab.host.containerd()?;
    let cri = Cri::connect(&lab.host)?;
    assert_eq!(cri.wait(&ending.id)?.exit_code, 137);
    assert_eq!(cri.status(&going_on.id)?.state(), ContainerState::Running);
    assert_eq!(cri.exec(&going_on.id, &["echo", "yes"])?.stdout, b"yes\n");
    assert_eq!(lab.shims()?.len(), 1);
    cri.stop(&going_on.id, 30)?;
    assert_eq!(cri.status(&going_on.id)?.exit_code, 0);
    cri.remove_pod(&pod.id)?;
    lab.nothing_left_of(&[&pod.id, &going_on.id, &ending.id])
}
