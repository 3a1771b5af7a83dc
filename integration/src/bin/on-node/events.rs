//! The kernel kills for want of memory, and clients learn of it before they learn of the end.

use anyhow::{Result, ensure};
use stasis_integration::client::containerd::{Containerd, INIT, Streams, briefs};
use stasis_integration::host::image::Image;

use crate::{create, systemd_driver};

pub(crate) fn want_of_memory_is_told_before_the_end(client: &Containerd) -> Result<()> {
    let mut events = client.events()?;
    let id = "oom";
    // tail keeps a line until it ends, and this one never does.
    let command = [Image::DEFAULT_NAME, id, "tail", "-n", "1", "/dev/zero"];
    create(client, id, &["--memory-limit", "16777216"], &command)?;
    client.create(id, &Streams::default(), systemd_driver()?)?;
    client.start(id, INIT)?;
    let told = briefs(&events.until(id, "exit oom 137")?);
    ensure!(
        told == ["create", "start", "oom", "exit oom 137"],
        "{told:?}"
    );
    client.delete(id)?;
    Ok(client.remove_container(id)?)
}
