//! The kubelet's checkpoint of a container becomes an image of a registry, as docs/kubernetes.md
//! has it, and a pod at another host has that for its image.

use anyhow::Result;
use stasis_integration::client::cri::Cri;
use stasis_integration::host::docker_registry::REGISTRY;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::host::{HostKind, Suite};

use super::by_kubelet::job;
use super::{host_at, host_for_registry, with_registry};
use crate::pages::{blocks, page};

/// The kubelet names archives so.
const ARCHIVE: &str =
    "/var/lib/kubelet/checkpoints/checkpoint-first_default-job-2026-11-28T12:00:00Z.tar";
const PORT: u16 = 10000;

#[test]
fn archive_becomes_the_image_of_a_pod_at_another_host() -> Result<()> {
    let registry = host_for_registry()?;
    let (network, _daemon) = with_registry(&registry)?;
    let image = format!("{REGISTRY}/jobs/job:1");
    let first = host_at(HostKind::sid()?, &registry, &network, 2)?;
    {
        let _node = first.node(Suite::Sid)?;
        let cri = Cri::connect(&first.host)?;
        cri.pull()?;
        let pod = cri.pod("first")?;
        let container = pod.run(&job())?;
        assert_eq!(first.ask_until_up(PORT)?, "ok 0");
        first
            .host
            .run(&["mkdir", "-p", "/var/lib/kubelet/checkpoints"])?;
        cri.checkpoint(&container.id, ARCHIVE)?;
        let made = recipe(&image)?;
        first
            .host
            .run(&["bash", "-ec", &format!("cd /root\n{made}")])?;
    }
    drop(first);

    let second = host_at(HostKind::sid()?, &registry, &network, 3)?;
    trusts_the_registry(&second)?;
    let _node = second.node(Suite::Sid)?;
    let cri = Cri::connect(&second.host)?;
    cri.pull()?;
    cri.pull_as(&image, "user", "secret")?;
    let pod = cri.pod("second")?;
    pod.run(&job().with_image(&image))?;
    assert_eq!(second.ask_until_up(PORT)?, "ok 1");
    assert_eq!(second.ask_until_up(PORT)?, "ok 2");
    assert_eq!(second.last_operation()?["operation"], "restore");
    pod.remove()?;
    second.nothing_to_put_right()
}

/// Returns the block of the page that makes the image, with the names of this test.
fn recipe(image: &str) -> Result<String> {
    let [block] = blocks(&page("docs/kubernetes.md")?, "Restore")?;
    let block = block
        .replace("REGISTRY/job:1", image)
        .replace("CONTAINER", "job");
    Ok(block.replace("ARCHIVE", ARCHIVE))
}

/// Has containerd take the registry's certificate for a good one.
fn trusts_the_registry(stasis: &StasisHost) -> Result<()> {
    let settings =
        format!("[host.'https://{REGISTRY}']\nca = '/etc/docker/certs.d/{REGISTRY}/ca.crt'\n");
    let file = format!("/etc/containerd/certs.d/{REGISTRY}/hosts.toml");
    stasis.write(&file, &settings)
}
