//! Two containers of which one has imported GPU memory of the other: no checkpoint is made, and the
//! owner's memory stays where it is, though nothing of its own container is in the way.

use std::process::Stdio;

use anyhow::{Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{PROGRAM, StasisHost};
use stasis_integration::needs;

/// The directory in which the two meet, in the host.
const SHARED: &str = "/run/meeting";
/// The owner's, and the importer's.
const PORTS: [u16; 2] = [10420, 10421];

pub(super) fn across_containers(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    stasis.inject("gpus 2")?;
    stasis.run(&["mkdir", "-p", SHARED])?;
    let members = [
        start(stasis, "owner", PORTS[0])?,
        start(stasis, "importer", PORTS[1])?,
    ];
    ensure!(stasis.ask_until_up(PORTS[0])? == "101 ended");
    ensure!(stasis.ask_until_up(PORTS[1])? == "ended 101");

    stasis.inject("gpus 2\ncheckpoint * error:999 1")?;
    let output = stasis
        .command(PROGRAM)
        .args(["checkpoint", "--group", "--root", ROOT])
        .args(["--into", "/images/sharing", "owner", "importer"])
        .stdin(Stdio::null())
        .output()?;
    ensure!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_contains(
        &said,
        &[
            "nccl-p2p",
            "1 allocations of GPU memory imported from no known process",
        ],
    );
    let left = stasis.take_order("checkpoint", "*")?;
    ensure!(left == 1, "GPU memory was moved: {said}");
    stasis.nothing_to_put_right()?;
    ensure!(stasis.ask(PORTS[0])?.as_deref() == Some("102 ended"));
    ensure!(stasis.ask(PORTS[1])?.as_deref() == Some("ended 102"));
    members.iter().try_for_each(Bundle::delete)
}

/// Starts the member that is called so, on the GPU of its own.
fn start<'l>(stasis: &'l StasisHost, member: &str, port: u16) -> Result<Bundle<'l>> {
    let socket = format!("{member}=/meeting/socket");
    let command = ["/bin/sharing", &port.to_string(), "2", &socket];
    let bundle = Bundle::make(stasis, member, &command)?;
    bundle.give(&[0, 1])?;
    bundle.mount(SHARED, "/meeting")?;
    bundle.run()?;
    Ok(bundle)
}
