//! README.md: the commands of its terminal, with those of docs/sizing.md, and two minutes with
//! podman on a node without a GPU, a network or an image.

use std::path::Path;

use anyhow::{Result, ensure};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::{needs, on_hosts};

use super::{Shown, blocks, page, printed, run, shown};
use crate::packages::{package, without_make_install};
use crate::setup::{CONTAINERS, PODMAN};

const SIZING: &str = "For a running job";
const INSTALL: &str = "Install";
const MINUTES: &str = "Two minutes with podman";
const BUSYBOX: &str = "/usr/bin/busybox";

on_hosts!(what_is_shown_is_so: sid_v2);

fn what_is_shown_is_so(kind: HostKind) -> Result<()> {
    let readme = page("README.md")?;
    the_terminals_commands_run(kind, &readme)?;
    two_minutes_are_as_shown(kind, &readme)
}

/// The words around values differ on a terminal, so only the commands are run.
fn the_terminals_commands_run(kind: HostKind, readme: &str) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::of(kind)?;
    stasis.set(
        kind.low_level,
        "gpu_contents.directory = \"/dev/shm/gpu\"\n",
    )?;
    stasis.podman_load()?;
    stasis.podman_run("train", &[], &["/bin/memcheck", "64", "10000"])?;
    assert_eq!(stasis.ask_until_up(10000)?, "ok 0");
    let terminal = readme.split("```\n").nth(1).unwrap_or_default();
    let commands = shown(terminal);
    ensure!(commands.len() > 3, "{terminal}");
    for Shown { command, .. } in commands {
        printed(stasis, &command)?;
    }
    printed(stasis, "stasis resume train")?;
    let sizing = page("docs/sizing.md")?;
    let [dry_run] = blocks(&sizing, SIZING)?;
    run(stasis, dry_run)?;
    stasis.podman_remove("train")
}

fn two_minutes_are_as_shown(kind: HostKind, readme: &str) -> Result<()> {
    let stasis = &StasisHost::of(kind)?;
    without_make_install(stasis)?;
    package(stasis)?;
    stasis.host.write(CONTAINERS, PODMAN)?;
    stasis.host.install(Path::new("/bin/busybox"), BUSYBOX)?;
    let [install] = blocks(readme, INSTALL)?;
    // The package is built elsewhere, and the host has the later version, too.
    let install = install.replace("target/package/stasis_*.deb", "stasis_0.1.0_*.deb");
    run(stasis, &install)?;
    let [minutes] = blocks(readme, MINUTES)?;
    let printed = run(stasis, minutes)?;
    let counts: Vec<u64> = printed
        .lines()
        .filter_map(|line| line.parse().ok())
        .collect();
    ensure!(
        matches!(counts[..], [saved, restored] if saved < restored),
        "it does not count on: {counts:?} in\n{printed}"
    );
    Ok(())
}
