//! The kubelet's checkpoint of a container at one host is restored in a pod at another, and begins
//! the container of a pod that names it.

use anyhow::Result;
use stasis_integration::client::cri::{ContainerConfig, Cri};
use stasis_integration::host::{HostKind, Suite};

use super::preempted::SETTINGS;
use super::{host_at, host_for_registry, moved, named, with_registry};

const ARCHIVE: &str = "/images/checkpoint.tar";
const PORT: u16 = 10000;
/// The pod's name, in the namespace of pods.
const NAME: &str = "default/pod";

pub(super) fn job() -> ContainerConfig {
    ContainerConfig::new("job", &["/bin/memcheck", "6", "10000"]).with_gpu("job")
}

#[test]
fn a_pod_begins_with_the_checkpoint_of_one_at_another_host() -> Result<()> {
    let registry = host_for_registry()?;
    let (network, _daemon) = with_registry(&registry)?;
    let first = host_at(HostKind::sid()?, &registry, &network, 2)?;
    {
        let _node = first.node(Suite::Sid)?;
        let cri = Cri::connect(&first.host)?;
        cri.pull()?;
        let pod = cri.pod("first")?;
        let container = pod.run(&job())?;
        assert_eq!(first.ask_until_up(PORT)?, "ok 0");
        cri.checkpoint(&container.id, ARCHIVE)?;
        moved(&first, &["push", &named(NAME), ARCHIVE])?;
    }
    drop(first);
    let second = host_at(HostKind::sid()?, &registry, &network, 3)?;
    let _node = second.node(Suite::Sid)?;
    let cri = Cri::connect(&second.host)?;
    cri.pull()?;
    moved(&second, &["pull", &named(NAME), ARCHIVE])?;
    let pod = cri.pod("second")?;
    pod.run(&job().with_image(ARCHIVE))?;
    assert_eq!(second.ask_until_up(PORT)?, "ok 1");
    assert_eq!(second.ask_until_up(PORT)?, "ok 2");
    pod.remove()?;
    second.set(&second.low_level, SETTINGS)?;
    let image = [("io.stasis.restore", named(NAME))];
    let image = image
        .each_ref()
        .map(|(name, value)| (*name, value.as_str()));
    let pod = cri.annotated_pod("third", &image)?;
    pod.run(&job())?;
    assert_eq!(second.ask_until_up(PORT)?, "ok 1");
    pod.remove()?;
    second.nothing_to_put_right()
}
