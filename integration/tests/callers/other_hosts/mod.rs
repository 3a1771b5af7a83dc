//! Images that travel: jobs end at one host, and go on at another one, which has no file of the
//! first, by way of a registry in a third.

mod as_image;
mod by_engine;
mod by_kubelet;
mod checkpointctl;
mod edges;
mod preempted;

use anyhow::{Context, Result};
use serde_json::Value;
use stasis_integration::host::docker_registry::REGISTRY;
use stasis_integration::host::installed::{PROGRAM, StasisHost};
use stasis_integration::host::network::Network;
use stasis_integration::host::{Cgroups, Daemon, Host, HostKind, Suite};

/// Gives a host a network of its own, and a registry.
fn with_registry(host: &Host) -> Result<(Network<'_>, Daemon<'_>)> {
    let network = Network::around(host)?;
    Ok((network, host.docker_registry(&[])?))
}

/// Starts a plain host for the registry.
fn host_for_registry() -> Result<Host> {
    Host::start(Suite::Trixie, Cgroups::V2)
}

/// Starts a host with stasis, with this number in the network of a registry.
fn host_at(
    kind: HostKind,
    registry: &Host,
    network: &Network<'_>,
    number: u8,
) -> Result<StasisHost> {
    let stasis = StasisHost::of(kind)?.through_the_shim()?;
    network.join(&stasis.host, number)?;
    registry.is_registry_of(&stasis.host)?;
    Ok(stasis)
}

fn named(name: &str) -> String {
    format!("{REGISTRY}/jobs/{name}:1")
}

/// Runs `stasis`, which has to succeed. Returns its answer.
fn moved(stasis: &StasisHost, arguments: &[&str]) -> Result<Value> {
    let command = [&[PROGRAM], arguments, &["--json"]].concat();
    let text = stasis.run_for_text(&command)?;
    serde_json::from_str(&text).context(text)
}
