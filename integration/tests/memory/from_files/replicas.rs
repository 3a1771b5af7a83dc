//! Many containers that are restored from one image at the same time: they share one copy of it.

use anyhow::{Context, Result, ensure};
use serde_json::json;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::needs;
use stasis_memory_store::Index;

use super::IN_MEMORY;
use super::as_an_image::{RAM, mapped_alone, packs_in};

const REPLICAS: usize = 20;

#[test]
fn twenty_share_one_copy() -> Result<()> {
    let stasis = &StasisHost::of(HostKind::trixie()?)?;
    needs!(StandIn);
    let _containerd = stasis.containerd()?;
    stasis.set(&stasis.low_level, IN_MEMORY)?;
    let first = apart(stasis, "first")?;
    first.run()?;
    ensure!(asked(stasis, "first")? == "ok 0");
    first.checkpoint("image", &[])?;
    let index = Index::read(&first.image_path("image"))?.context("no index")?;
    let directory = stasis.host.path(RAM).join(index.image_id.to_string());
    let stored = packs_in(&directory)?;
    ensure!(stored.len() == 1, "{stored:?}");

    let ids: Vec<String> = (0..REPLICAS)
        .map(|number| format!("replica{number}"))
        .collect();
    let replicas = ids.iter().map(|id| apart(stasis, id));
    let replicas = replicas.collect::<Result<Vec<_>>>()?;
    all_at_once(stasis, &replicas, &first.image("image"))?;
    // What one of them does to its memory is not seen by the others.
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
    // The image is good for one more.
    first.restore("image")?;
    ensure!(asked(stasis, "first")? == "ok 1");
    first.delete()
}

/// None begins to copy before all have their processes.
fn all_at_once(stasis: &StasisHost, replicas: &[Bundle<'_>], image: &str) -> Result<()> {
    stasis.hold_driver_for("restore first", "restoring", REPLICAS)?;
    let restores = replicas
        .iter()
        .map(|replica| replica.begin_restore_from(image));
    let restores = restores.collect::<Result<Vec<_>>>()?;
    for left in (0..REPLICAS).rev() {
        wait_until_clear(|| {
            let now = stasis.calls_left()?;
            Ok((now > left).then(|| format!("{now} restores have not come so far")))
        })?;
    }
    wait_until_clear(|| mapped_alone(stasis, REPLICAS))?;
    stasis.let_driver_go("restoring")?;
    for (mut restore, replica) in restores.into_iter().zip(replicas) {
        let status = restore.wait()?;
        ensure!(status.success(), "{}: {:?}", replica.id, replica.message()?);
    }
    Ok(())
}

/// A container that has a network of its own, for which nobody of CRIU cares: all have one port.
fn apart<'l>(stasis: &'l StasisHost, id: &str) -> Result<Bundle<'l>> {
    stasis.host.run(&["ip", "netns", "add", id])?;
    stasis
        .host
        .run(&["ip", "-n", id, "link", "set", "lo", "up"])?;
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

/// Its answer to one packet, which it gets once it is there.
fn asked(stasis: &StasisHost, id: &str) -> Result<String> {
    let bash = "exec 3<>/dev/udp/127.0.0.1/10000; echo x >&3; timeout 60 head -n 1 <&3";
    let listens = ["ip", "netns", "exec", id, "ss", "-Hlun"];
    wait_until_clear(|| {
        let sockets = stasis.host.run_for_text(&listens)?;
        Ok((!sockets.contains(":10000")).then_some(sockets))
    })?;
    stasis
        .host
        .run_for_text(&["ip", "netns", "exec", id, "bash", "-c", bash])
}
