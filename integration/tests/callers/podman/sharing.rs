//! GPU memory that processes of a container share, through podman's images.

use anyhow::Result;
use stasis_integration::host::installed::StasisHost;

/// The importer's number is read in the owner's GPU memory.
pub(super) fn stays_shared(stasis: &StasisHost) -> Result<()> {
    stasis.inject("gpus 2")?;
    let second = ["--device=/dev/nvidia1"];
    stasis.podman_run("sharing", &second, &["/bin/sharing", "10006"])?;
    assert_eq!(stasis.ask_until_up(10006)?, "101 101");
    let archive = "/images/sharing.tar";
    let options = [
        "checkpoint",
        "--leave-running",
        "--keep",
        "--export",
        archive,
    ];
    stasis.podman_container(&options, "sharing")?;
    assert_eq!(stasis.ask(10006)?.as_deref(), Some("102 102"));
    stasis.podman_container(&["checkpoint"], "sharing")?;
    stasis.podman_container(&["restore"], "sharing")?;
    assert_eq!(stasis.ask(10006)?.as_deref(), Some("103 103"));
    stasis.podman_remove("sharing")?;
    for name in ["sharing-once", "sharing-twice"] {
        stasis.podman(&["container", "restore", "--import", archive, "--name", name])?;
        assert_eq!(stasis.ask(10006)?.as_deref(), Some("102 102"));
        stasis.podman_remove(name)?;
    }
    stasis.inject("")
}
