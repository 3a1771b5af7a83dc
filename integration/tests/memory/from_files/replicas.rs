//! Many containers that are restored, or created, from one image at the same time: they share one
//! copy of it.

use std::process::{Child, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use stasis_integration::check::process_tree::has_ended;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::container::contents::{IN_MEMORY, MEMORY};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::needs;
use stasis_memory_store::Index;

use super::as_an_image::{mapped_alone, packs_in};
use crate::patience::patiently;

/// Three tests restore this many, maybe at the same time. Each CRIU in a restore has some 45
/// descriptors in flight (criu/fdstore.c: two for each mount), the kernel counts them for all of
/// root on this machine, and a process that is dumped without `CAP_SYS_RESOURCE` may send none
/// above 1024, its RLIMIT_NOFILE (`too_many_unix_fds` in net/core/scm.c).
pub(crate) const REPLICAS: usize = 8;

#[test]
fn many_share_one_copy() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::trixie()?)?;
    stasis.set(&stasis.low_level, IN_MEMORY)?;
    let first = apart(stasis, "first")?;
    first.run()?;
    ensure!(asked(stasis, "first")? == "ok 0");
    first.checkpoint("image", &[])?;
    let index = Index::read(&first.image_path("image"))?.context("no index")?;
    let directory = stasis.path(MEMORY).join(index.image_id.to_string());
    let stored = packs_in(&directory)?;
    ensure!(stored.len() == 1, "{stored:?}");

    let ids: Vec<String> = (0..REPLICAS)
        .map(|number| format!("replica{number}"))
        .collect();
    let replicas = ids.iter().map(|id| apart(stasis, id));
    let replicas = replicas.collect::<Result<Vec<_>>>()?;
    let image = first.image("image");
    all_at_once(stasis, &replicas, |replica| {
        replica.begin_restore_from(&image)
    })?;
    // A replica's changes to its memory are not seen by the others.
    for (round, replica) in (1..).zip(&replicas) {
        for answer in 1..=round.min(3) {
            let said = asked(stasis, &replica.id)?;
            ensure!(said == format!("ok {answer}"), "{}: {said}", replica.id);
        }
    }
    assert_eq!(packs_in(&directory)?, stored);
    for replica in &replicas {
        replica.delete()?;
    }
    stasis.nothing_to_put_right()?;
    // The image is good for one more restore.
    first.restore("image")?;
    ensure!(asked(stasis, "first")? == "ok 1");
    first.delete()
}

/// Created by their annotation, each in a network of its own with an address of its own.
#[test]
fn many_are_created_at_once() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::trixie()?)?;
    let settings = format!("{IN_MEMORY}restore.at_create = \"/images\"\n");
    stasis.set(&stasis.low_level, &settings)?;
    let first = apart(stasis, "first")?;
    first.run()?;
    ensure!(asked(stasis, "first")? == "ok 0");
    first.checkpoint("image", &[])?;
    let numbered = (0..REPLICAS).map(|number| {
        let replica = apart(stasis, &format!("replica{number}"))?;
        give_address(stasis, &replica.id, number)?;
        replica.begin_with("first-image")?;
        Ok(replica)
    });
    let replicas = numbered.collect::<Result<Vec<_>>>()?;
    create_at_once(&replicas)?;
    all_at_once(stasis, &replicas, |replica| {
        begin(replica, &["start", &replica.id])
    })?;
    for (number, replica) in replicas.iter().enumerate() {
        for answer in 1..=number.min(2) + 1 {
            let said = asked(stasis, &replica.id)?;
            ensure!(said == format!("ok {answer}"), "{}: {said}", replica.id);
        }
        let network = replica.exec("cat /proc/net/fib_trie")?;
        ensure!(network.contains(&address(number)), "{network}");
    }
    for replica in &replicas {
        replica.delete()?;
    }
    stasis.nothing_to_put_right()
}

/// Starts the runtime, whose messages are in its log.
fn begin(replica: &Bundle<'_>, arguments: &[&str]) -> Result<Child> {
    let mut runtime = replica.operation(arguments)?;
    Ok(runtime.stderr(Stdio::null()).spawn()?)
}

/// Creates all replicas from their images.
pub(crate) fn create_at_once(replicas: &[Bundle<'_>]) -> Result<()> {
    let create = |replica: &Bundle<'_>| {
        let directory = replica.directory();
        begin(replica, &["create", "--bundle", &directory, &replica.id])
    };
    let creates = replicas.iter().map(create).collect::<Result<Vec<_>>>()?;
    succeed(creates, replicas)?;
    replicas.iter().try_for_each(is_created)
}

pub(crate) fn is_created(container: &Bundle<'_>) -> Result<()> {
    let said = (container.warnings()?, container.status()?);
    ensure!(said == (String::new(), "created".to_owned()), "{said:?}");
    Ok(())
}

/// Returns the address of a replica in its network.
fn address(number: usize) -> String {
    format!("10.88.{number}.2")
}

fn give_address(stasis: &StasisHost, id: &str, number: usize) -> Result<()> {
    let own = address(number);
    let script = format!(
        "ip link add {id} type veth peer name eth0 netns {id} && ip link set {id} up && \
         ip -n {id} address add {own}/24 dev eth0 && ip -n {id} link set eth0 up"
    );
    stasis.run(&["bash", "-c", &script]).map(drop)
}

/// Restores all; none begins to copy before all have their processes.
fn all_at_once<'l>(
    stasis: &StasisHost,
    replicas: &[Bundle<'l>],
    begin: impl Fn(&Bundle<'l>) -> Result<Child>,
) -> Result<()> {
    stasis.hold_driver_for("restore first", "restoring", REPLICAS)?;
    let restores = replicas.iter().map(begin).collect::<Result<Vec<_>>>()?;
    patiently(|| {
        let left = stasis.calls_left()?;
        // A restore that has failed never gets there, and the others wait for it.
        if left > 0
            && let Some(ended) = restores.iter().position(has_ended)
        {
            bail!("{}: {:?}", replicas[ended].id, replicas[ended].message()?);
        }
        Ok((left > 0).then(|| format!("{left} restores have not come so far")))
    })?;
    patiently(|| mapped_alone(stasis, REPLICAS))?;
    stasis.let_driver_go("restoring")?;
    succeed(restores, replicas)
}

fn succeed(begun: Vec<Child>, replicas: &[Bundle<'_>]) -> Result<()> {
    for (mut runtime, replica) in begun.into_iter().zip(replicas) {
        let status = runtime.wait()?;
        ensure!(status.success(), "{}: {:?}", replica.id, replica.message()?);
    }
    Ok(())
}

/// Makes a container with a network of its own, which CRIU does not restore: all have one port.
pub(crate) fn apart<'l>(stasis: &'l StasisHost, id: &str) -> Result<Bundle<'l>> {
    stasis.run(&["ip", "netns", "add", id])?;
    stasis.run(&["ip", "-n", id, "link", "set", "lo", "up"])?;
    let bundle = Bundle::make(stasis, id, &["/bin/memcheck", "16", "10000"])?;
    let network = json!({ "type": "network", "path": format!("/run/netns/{id}") });
    bundle.change(|spec| {
        let namespaces = spec["linux"]["namespaces"].as_array_mut();
        namespaces
            .into_iter()
            .for_each(|all| all.push(network.clone()));
    })?;
    Ok(bundle)
}

/// Returns the container's answer to one packet, which is sent once it listens.
pub(crate) fn asked(stasis: &StasisHost, id: &str) -> Result<String> {
    let bash = "exec 3<>/dev/udp/127.0.0.1/10000; echo x >&3; timeout 60 head -n 1 <&3";
    let listens = ["ip", "netns", "exec", id, "ss", "-Hlun"];
    wait_until_clear(|| {
        let sockets = stasis.run_for_text(&listens)?;
        Ok((!sockets.contains(":10000")).then_some(sockets))
    })?;
    stasis.run_for_text(&["ip", "netns", "exec", id, "bash", "-c", bash])
}
