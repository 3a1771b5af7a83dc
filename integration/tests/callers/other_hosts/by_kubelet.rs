//! The kubelet's checkpoint of a container at one host is restored in a pod at another.

use anyhow::Result;
use stasis_integration::client::cri::{ContainerConfig, Cri};
use stasis_integration::host::{HostKind, Suite};

use super::{host_at, host_for_registry, moved, named, with_registry};

const ARCHIVE: &str = "/images/checkpoint.tar";
const PORT: u16 = 10000;

fn job() -> ContainerConfig {
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
        moved(&first, &["push", &named("pod"), ARCHIVE])?;
    }
    drop(first);
    let second = host_at(HostKind::sid()?, &registry, &network, 3)?;
    let _node = second.node(Suite::Sid)?;
    let cri = Cri::connect(&second.host)?;
    cri.pull()?;
    moved(&second, &["pull", &named("pod"), ARCHIVE])?;
    let pod = cri.pod("second")?;
    pod.run(&job().with_image(ARCHIVE))?;
    assert_eq!(second.ask_until_up(PORT)?, "ok 1");
    assert_eq!(second.ask_until_up(PORT)?, "ok 2");
    pod.remove()?;
    second.nothing_to_put_right()
}
