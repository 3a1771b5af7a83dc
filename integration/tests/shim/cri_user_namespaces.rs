//! A pod with a user namespace (`hostUsers: false`) through CRI. Such a pod has a network of its
//! own, which a stub of a network plugin gives it: loopback alone. A restore could not join that
//! network, so a checkpoint of its containers is refused.

use std::fs;

use anyhow::{Context, Result};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::client::cri::{Container, ContainerConfig, Cri};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::needs;

const ARCHIVE: &str = "/images/refused.tar";
/// A plugin that names an address, without which containerd takes a network for none.
const PLUGIN: &str = r#"#!/bin/sh
cat >/dev/null
versions='"cniVersion":"1.0.0","supportedVersions":["0.3.1","0.4.0","1.0.0"]'
case $CNI_COMMAND in
VERSION) echo "{$versions}" ;;
ADD)
    nsenter --net="$CNI_NETNS" ip link set lo up
    interface="{\"name\":\"$CNI_IFNAME\",\"sandbox\":\"$CNI_NETNS\"}"
    address='{"interface":0,"address":"127.0.0.1/8"}'
    echo "{\"cniVersion\":\"1.0.0\",\"interfaces\":[$interface],\"ips\":[$address]}" ;;
esac
"#;
const NETWORK: &str = r#"{"cniVersion":"1.0.0","name":"stub","plugins":[{"type":"stub"}]}"#;

#[test]
fn checkpoints_in_pods_of_other_users_are_refused() -> Result<()> {
    let stasis = &StasisHost::of(HostKind::sid()?)?;
    needs!(StandIn);
    for name in ["loopback", "stub"] {
        let at = format!("/opt/cni/bin/{name}");
        stasis.script(&at, PLUGIN)?;
    }
    stasis.write("/etc/cni/net.d/10-stub.conflist", NETWORK)?;
    let node = stasis.node(HostKind::sid()?.suite)?;
    let cri = &Cri::connect(&stasis.host)?;
    cri.pull()?;
    let checked = is_refused_and_goes_on(stasis, cri);
    checked.inspect_err(|_| println!("{}", node.daemon.log().unwrap_or_default()))
}

fn is_refused_and_goes_on(stasis: &StasisHost, cri: &Cri) -> Result<()> {
    let counter = ContainerConfig::new("counter", &["/bin/counter", "0"]).with_gpu("counter");
    let pod = cri.pod_in_a_user_namespace("users")?;
    let container = pod.run(&counter)?;
    is_nobodys(stasis, &container)?;
    counts_beyond(stasis, &container, 100)?;
    let refused = cri.checkpoint(&container.id, ARCHIVE);
    let named = [
        "joined-namespace: ",
        "has joined the network of /",
        "hostUsers: true",
        "nothing was changed",
    ];
    assert_contains(&format!("{refused:?}"), &named);
    let counted = count(stasis, &container)?.context("no count")?;
    counts_beyond(stasis, &container, counted)?;
    pod.remove()?;
    stasis.nothing_left_of(&[&container.id])
}

/// Checks that the container's root is nobody on the host.
fn is_nobodys(stasis: &StasisHost, container: &Container) -> Result<()> {
    let map = stasis.path(format!("/proc/{}/uid_map", container.pid));
    let map = fs::read_to_string(map)?;
    let root: Vec<&str> = map.split_whitespace().take(2).collect();
    assert_eq!(root, ["0", "100000"]);
    Ok(())
}

fn counts_beyond(stasis: &StasisHost, container: &Container, counted: u32) -> Result<()> {
    wait_until_clear(|| {
        let count = count(stasis, container)?;
        Ok((count <= Some(counted)).then(|| format!("{count:?} after {counted}")))
    })
}

/// Returns the container's latest count; `None` before the first, or while that is written.
fn count(stasis: &StasisHost, container: &Container) -> Result<Option<u32>> {
    let answer = format!("/proc/{}/root/answer", container.pid);
    let answer = fs::read_to_string(stasis.path(answer)).unwrap_or_default();
    Ok(answer.trim().parse().ok())
}
