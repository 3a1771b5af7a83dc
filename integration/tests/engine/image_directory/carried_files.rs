//! Files that an image carries, of a container without a GPU: they come back also from an image
//! that its killed checkpoint has not described.

use anyhow::{Result, ensure};
use serde_json::json;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;

use super::KILLER;

/// The directory that an engine mounts for the container, and unmounts when it has ended.
const SHARED_MEMORY: &str = "/job-shm";

#[test]
fn they_come_back_though_the_checkpoint_was_killed() -> Result<()> {
    let stasis = StasisHost::with_containerd(HostKind::sid()?)?;
    stasis.script(KILLER.0, KILLER.1)?;
    stasis.run(&["mkdir", SHARED_MEMORY])?;
    let mount = ["mount", "-t", "tmpfs", "tmpfs", SHARED_MEMORY];
    stasis.run(&mount)?;
    let job = Bundle::make(&stasis, "job", &["/bin/kept", "10005", "shared"])?;
    job.change(|spec| {
        spec["linux"]["devices"] = json!([]);
        let mounts = spec["mounts"].as_array_mut();
        let mounts = mounts.into_iter();
        mounts.for_each(|mounts| mounts.retain(|mount| mount["destination"] != "/dev/shm"));
    })?;
    job.mount(SHARED_MEMORY, "/dev/shm")?;
    job.comes_up(10005, "1 ok")?;
    stasis.set(KILLER.0, "runtime.flavor = \"runc\"\n")?;
    let mut checkpoint = job.begin_checkpoint("image", &[])?;
    ensure!(!checkpoint.wait()?.success(), "it was not killed");
    job.until_ended()?;
    stasis.set("runc", "")?;
    stasis.nothing_to_put_right()?;
    job.delete()?;
    stasis.run(&["umount", SHARED_MEMORY])?;
    stasis.run(&mount)?;
    job.restore("image")?;
    assert_eq!(stasis.ask_until_up(10005)?, "2 ok");
    job.delete()
}
