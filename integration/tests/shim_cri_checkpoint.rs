//! What the kubelet's checkpoint becomes, and its restore, with the shim and a GPU.

use std::collections::BTreeSet;

use anyhow::Result;
use stasis_integration::containerd::{Code, code};
use stasis_integration::cri::{ContainerConfig, ContainerState, Cri, Pod, on_a_node};
use stasis_integration::host::Suite;
use stasis_integration::lab::Lab;
use stasis_integration::native;

const ARCHIVE: &str = "/images/checkpoint.tar";

#[test]
fn trixie() -> Result<()> {
    on_a_node(Suite::Trixie, &[containerd_1_has_no_checkpoint])
}

/// The later checks restore the archive of the first.
#[test]
fn sid() -> Result<()> {
    on_a_node(
        Suite::Sid,
        &[
            checkpoint_becomes_an_archive,
            archive_is_restored_in_another_pod,
            archive_is_restored_on_another_gpu,
            restore_is_started_by_the_shim_on_the_path,
            why_a_checkpoint_fails_is_told,
        ],
    )
}

fn counter(port: &str) -> ContainerConfig {
    ContainerConfig::new("counter", &["/bin/counter", port]).with_gpu("counter")
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
    let neighbour = pod.run(&ContainerConfig::new("neighbour", &["/bin/pause"]))?;
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
    let records = lab
        .host
        .run_for_text(&["find", "/run/stasis/containers", "-type", "f"])?;
    assert_eq!(records, "");
    lab.nothing_left_of(&[&restored])
}

/// The device plugin gives the new container another GPU than the old one had.
fn archive_is_restored_on_another_gpu(lab: &Lab, cri: &Cri) -> Result<()> {
    if native::has_gpu() {
        return Ok(());
    }
    lab.order("gpus 2")?;
    let pod = cri.pod("moved")?;
    let restored = pod.run(&counter("10000").on_gpu(1).with_image(ARCHIVE))?;
    assert_eq!(lab.ask(10000)?.as_deref(), Some("103"));
    let nodes = cri.exec(&restored.id, &["sh", "-c", "ls -d /dev/nvidia*"])?;
    let nodes = String::from_utf8_lossy(&nodes.stdout).into_owned();
    assert_eq!(nodes, "/dev/nvidia-uvm\n/dev/nvidia1\n/dev/nvidiactl\n");
    let noted = lab.last_operation()?["notes"].to_string();
    assert!(noted.contains("is restored to GPU-"), "{noted}");
    pod.remove()?;
    lab.order("")?;
    lab.nothing_left_of(&[&restored.id])
}

/// containerd forgets `runtime_path` in a restore, and starts the shim that the type names: any one that
/// finds the pod's shim will do.
fn restore_is_started_by_the_shim_on_the_path(lab: &Lab, cri: &Cri) -> Result<()> {
    let (named, away) = ("/usr/bin/containerd-shim-runc-v2", "/root/containerds-own");
    let pod = cri.pod("none")?;
    lab.host.run(&["mv", named, away])?;
    let refused = pod.run(&counter("10000").with_image(ARCHIVE));
    assert!(format!("{refused:?}").contains(named), "{refused:?}");
    pod.remove()?;

    let pod = cri.pod("ours")?;
    let ours = "/usr/local/bin/containerd-shim-stasis-v2";
    lab.host.run(&["ln", "-s", ours, named])?;
    let restored = is_restored(lab, cri, &pod, "103")?;
    pod.remove()?;
    lab.host.run(&["mv", away, named])?;
    lab.nothing_left_of(&[&restored])
}

/// Restores the archive's counter, which has to count on; its id.
fn is_restored(lab: &Lab, cri: &Cri, pod: &Pod<'_>, next: &str) -> Result<String> {
    let restored = pod.run(&counter("10000").with_image(ARCHIVE))?;
    assert_eq!(lab.ask(10000)?.as_deref(), Some(next));
    assert_eq!(lab.last_operation()?["operation"], "restore");
    assert_eq!(lab.parent(restored.pid)?, lab.shims()?[0]);
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
