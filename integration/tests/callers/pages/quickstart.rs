//! docs/quickstart.md as written: each of its blocks is run in a host, in the page's order.

use anyhow::{Result, ensure};
use stasis_integration::client::cri::settings;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::{needs, on_hosts};

use super::node::{ARCHIVE, has_a_gpu, has_an_image, has_systemctl};
use super::{blocks, page, run};
use crate::packages::{package, without_make_install};
use crate::setup::{CONTAINERS, DAEMON, DOCKER, PODMAN};

/// The page's headings for a node, and for each engine.
const NODE: &str = "The node";
const ENGINES: [&str; 3] = ["podman", "containerd", "Docker"];
const LOG: &str = "What was done";
const PORT: u16 = 10000;

// crun has no restore for containerd, and Docker takes CDI by itself from 28.3 on.
on_hosts!(every_block_does_what_is_said: sid_v2);

fn every_block_does_what_is_said(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let page = page("docs/quickstart.md")?;
    let stasis = &StasisHost::of(kind)?;
    is_a_node(stasis, kind)?;

    let [install, doctor] = blocks(&page, NODE)?;
    run(stasis, &install)?;
    // The default settings do not look for a driver where the stand-in is.
    stasis.set(kind.low_level, "")?;
    let found = run(stasis, &doctor)?;
    ensure!(found.contains("faults: 0"), "{found}");
    for engine in ENGINES {
        let [setup, start, checkpoint, restore, end] = blocks(&page, engine)?;
        run(stasis, &setup)?;
        has_the_image(stasis, engine)?;
        run(stasis, &start)?;
        assert_eq!(stasis.ask_until_up(PORT)?, "101", "{engine}");
        run(stasis, &checkpoint)?;
        assert!(stasis.is_silent(PORT)?, "{engine}");
        run(stasis, &restore)?;
        assert_eq!(stasis.ask_until_up(PORT)?, "102", "{engine}");
        run(stasis, &end)?;
        assert!(stasis.is_silent(PORT)?, "{engine}");
    }
    let [log] = blocks(&page, LOG)?;
    let drawn = run(stasis, &log)?;
    for line in ["checkpoint of", "restore of", "#"] {
        ensure!(drawn.matches(line).count() >= ENGINES.len(), "{drawn}");
    }
    Ok(())
}

/// Makes the host a node on which stasis is not installed: its package lies there, its engines know
/// nothing of it, and its GPU has a CDI file.
fn is_a_node(stasis: &StasisHost, kind: HostKind) -> Result<()> {
    let host = &stasis.host;
    without_make_install(stasis)?;
    package(stasis)?;
    host.run(&["sh", "-c", "rm -r /root/later /root/stasis_0.1.1_*"])?;
    host.write(DAEMON, DOCKER)?;
    host.write(CONTAINERS, PODMAN)?;
    settings::write(host, kind.suite, "version = 2\n")?;
    has_a_gpu(host)?;
    has_systemctl(host)?;
    has_an_image(host)
}

/// Loads the image, since none can be pulled.
fn has_the_image(stasis: &StasisHost, engine: &str) -> Result<()> {
    let load: &[&str] = match engine {
        "podman" => &["podman", "load", "-q", "-i", ARCHIVE],
        "Docker" => &["docker", "load", "-q", "-i", ARCHIVE],
        _ => &["ctr", "image", "import", ARCHIVE],
    };
    stasis.run(load).map(drop)
}
