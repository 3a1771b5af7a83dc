//! The kubelet's checkpoint, and its restore, with the shim and a GPU.

use std::collections::BTreeSet;

use anyhow::Result;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::client::containerd::{Code, code};
use stasis_integration::client::cri::{ContainerConfig, ContainerState, Cri, Pod, on_a_node};
use stasis_integration::host::installed::StasisHost;
use stasis_integration::host::{HostKind, Suite};
use stasis_integration::{needs, on_hosts};

const ARCHIVE: &str = "/images/checkpoint.tar";

on_hosts!(checks: trixie, sid);

/// The later checks restore the first one's archive.
fn checks(kind: HostKind) -> Result<()> {
    let checks: &[Check] = match kind.suite {
        Suite::Trixie => &[containerd_1_has_no_checkpoint],
        Suite::Sid => &[
            checkpoint_becomes_an_archive,
            archive_is_restored_in_another_pod,
            archive_is_restored_on_another_gpu,
            restore_is_started_by_the_shim_on_the_path,
            why_a_checkpoint_fails_is_told,
        ],
    };
    on_a_node(kind, checks)
}

type Check = fn(&StasisHost, &Cri) -> Result<()>;

fn counter(port: &str) -> ContainerConfig {
    ContainerConfig::new("counter", &["/bin/counter", port]).with_gpu("counter")
}

fn containerd_1_has_no_checkpoint(stasis: &StasisHost, cri: &Cri) -> Result<()> {
    let pod = cri.pod("checkpoint")?;
    let container = pod.run(&counter("10000"))?;
    assert_eq!(stasis.ask_until_up(10000)?, "101");
    let refused = cri.checkpoint(&container.id, ARCHIVE);
    assert_eq!(code(&refused), Code::Unimplemented);
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    pod.remove()?;
    stasis.nothing_left_of(&[&container.id])
}

/// The container goes on, and is restored beside the pod's other containers by the same shim.
fn checkpoint_becomes_an_archive(stasis: &StasisHost, cri: &Cri) -> Result<()> {
    let pod = cri.pod("checkpoint")?;
    let neighbour = pod.run(&ContainerConfig::new("neighbour", &["/bin/pause"]))?;
    let container = pod.run(&counter("10000"))?;
    assert_eq!(stasis.ask_until_up(10000)?, "101");
    cri.exec(&container.id, &["sh", "-c", "echo kept >/root/file"])?;
    cri.checkpoint(&container.id, ARCHIVE)?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    assert_eq!(stasis.last_operation()?["operation"], "resume");

    let files = stasis.run_for_text(&["tar", "tf", ARCHIVE])?;
    let files: BTreeSet<_> = files.lines().collect();
    for file in ["stasis.json", "inventory.img", "descriptors.json"] {
        assert!(
            files.contains(format!("checkpoint/{file}").as_str()),
            "{files:?}"
        );
    }
    let manifest = ["tar", "xOf", ARCHIVE, "checkpoint/stasis.json"];
    let manifest: serde_json::Value = serde_json::from_str(&stasis.run_for_text(&manifest)?)?;
    assert_eq!(manifest["container"], container.id);

    // Another archive of the same container, into the same file.
    cri.checkpoint(&container.id, ARCHIVE)?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("103"));
    cri.stop(&container.id, 10)?;
    cri.remove(&container.id)?;
    assert!(stasis.is_silent(10000)?);

    let restored = is_restored(stasis, cri, &pod, "103")?;
    assert_eq!(stasis.shims()?.len(), 1);
    assert!(stasis.lives(neighbour.pid));
    pod.remove()?;
    stasis.nothing_left_of(&[&container.id, &restored, &neighbour.id])
}

/// A pod of another name on a node without any part of the old one, as after a migration.
fn archive_is_restored_in_another_pod(stasis: &StasisHost, cri: &Cri) -> Result<()> {
    let pod = cri.pod("migrated")?;
    let restored = is_restored(stasis, cri, &pod, "103")?;
    pod.remove()?;
    assert_eq!(stasis.records()?, "");
    stasis.nothing_left_of(&[&restored])
}

/// The device plugin gives the new container another GPU than the old one's.
fn archive_is_restored_on_another_gpu(stasis: &StasisHost, cri: &Cri) -> Result<()> {
    needs!(StandIn);
    stasis.inject("gpus 2")?;
    let pod = cri.pod("moved")?;
    let restored = pod.run(&counter("10000").on_gpu(1).with_image(ARCHIVE))?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("103"));
    let nodes = cri.exec(&restored.id, &["sh", "-c", "ls -d /dev/nvidia*"])?;
    let nodes = String::from_utf8_lossy(&nodes.stdout).into_owned();
    assert_eq!(nodes, "/dev/nvidia-uvm\n/dev/nvidia1\n/dev/nvidiactl\n");
    let noted = stasis.last_operation()?["notes"].to_string();
    assert!(noted.contains("is restored to GPU-"), "{noted}");
    pod.remove()?;
    stasis.inject("")?;
    stasis.nothing_left_of(&[&restored.id])
}

/// containerd forgets `runtime_path` in a restore, and starts the shim that the type names: any
/// program that finds the pod's shim will do.
fn restore_is_started_by_the_shim_on_the_path(stasis: &StasisHost, cri: &Cri) -> Result<()> {
    let (named, away) = ("/usr/bin/containerd-shim-runc-v2", "/root/containerds-own");
    let pod = cri.pod("none")?;
    stasis.run(&["mv", named, away])?;
    let refused = pod.run(&counter("10000").with_image(ARCHIVE));
    assert!(format!("{refused:?}").contains(named), "{refused:?}");
    pod.remove()?;

    let pod = cri.pod("ours")?;
    let ours = "/usr/local/bin/containerd-shim-stasis-v2";
    stasis.run(&["ln", "-s", ours, named])?;
    let restored = is_restored(stasis, cri, &pod, "103")?;
    pod.remove()?;
    stasis.run(&["mv", away, named])?;
    stasis.nothing_left_of(&[&restored])
}

/// Restores the archive's counter, which has to count on. Returns its id.
fn is_restored(stasis: &StasisHost, cri: &Cri, pod: &Pod<'_>, next: &str) -> Result<String> {
    let restored = pod.run(&counter("10000").with_image(ARCHIVE))?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some(next));
    assert_eq!(stasis.last_operation()?["operation"], "restore");
    assert_eq!(stasis.parent(restored.pid)?, stasis.shims()?[0]);
    assert_eq!(cri.status(&restored.id)?.state(), ContainerState::Running);
    let file = cri.exec(&restored.id, &["cat", "/root/file"])?;
    assert_eq!(file.stdout, b"kept\n");
    cri.stop(&restored.id, 10)?;
    let ended = cri.status(&restored.id)?;
    assert_eq!((ended.exit_code, ended.reason.as_str()), (0, "Completed"));
    assert!(!stasis.lives(restored.pid));
    Ok(restored.id)
}

fn why_a_checkpoint_fails_is_told(stasis: &StasisHost, cri: &Cri) -> Result<()> {
    let pod = cri.pod("refused")?;
    let container = pod.run(&counter("10001"))?;
    assert_eq!(stasis.ask_until_up(10001)?, "101");
    stasis.inject("lock counter busy")?;
    stasis.set("runc", "[deadlines]\nlock_ms = 500\n")?;
    let refused = cri.checkpoint(&container.id, "/images/refused.tar");
    let message = format!("{refused:?}");
    assert_contains(
        &message,
        &[
            "lock of process",
            "the container is paused as before, with its GPU",
        ],
    );
    assert_eq!(stasis.ask(10001)?.as_deref(), Some("102"));
    assert_eq!(cri.status(&container.id)?.state(), ContainerState::Running);
    stasis.inject("")?;
    stasis.set("runc", "")?;
    cri.checkpoint(&container.id, "/images/accepted.tar")?;
    assert_eq!(stasis.ask(10001)?.as_deref(), Some("103"));
    pod.remove()?;
    stasis.nothing_left_of(&[&container.id])
}
