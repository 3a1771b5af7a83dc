//! README.md: the commands of its terminal, with those of docs/sizing.md, and two minutes with
//! podman on a node without a GPU, a network or an image.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{DRIVER, StasisHost};
use stasis_integration::{needs, on_hosts};

use super::{Shown, blocks, page, printed, run, shown};
use crate::packages::{package, without_make_install};
use crate::setup::{CONTAINERS, DAEMON, DOCKER, PODMAN};

const TITLE: &str = "stasis";
const SIZING: &str = "For a running job";
const INSTALL: &str = "Install";
const MINUTES: &str = "Two minutes with podman";
const BUSYBOX: &str = "/usr/bin/busybox";

on_hosts!(what_is_shown_is_so: trixie, sid_v2);

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
    let [terminal] = blocks::<1>(readme, TITLE)?;
    let commands = shown(&terminal);
    ensure!(commands.len() > 3, "{terminal}");
    for Shown { command, .. } in commands {
        printed(stasis, &command)?;
    }
    printed(stasis, "stasis resume train")?;
    let sizing = page("docs/sizing.md")?;
    let [dry_run] = blocks(&sizing, SIZING)?;
    run(stasis, &dry_run)?;
    stasis.podman_remove("train")
}

/// From the package to a restored container, on a node that has no GPU.
fn two_minutes_are_as_shown(kind: HostKind, readme: &str) -> Result<()> {
    let stasis = &StasisHost::of(kind)?;
    without_make_install(stasis)?;
    package(stasis)?;
    stasis.write(CONTAINERS, PODMAN)?;
    stasis.write(DAEMON, DOCKER)?;
    stasis.host.install(Path::new("/bin/busybox"), BUSYBOX)?;
    let no_gpu = format!("rm -r /dev/nvidia* {DRIVER}/lib64");
    stasis.run(&["sh", "-c", &no_gpu])?;
    let began = Instant::now();
    let [install] = blocks(readme, INSTALL)?;
    ensure!(install.contains("stasis doctor"), "{install}");
    // The package is built elsewhere, and the host has the later version, too.
    let install = install.replace("target/package/stasis_*.deb", "stasis_0.1.0_*.deb");
    let found = run(stasis, &install)?;
    ensure!(found.contains("\nfaults: 0, warnings: "), "{found}");
    let [minutes] = blocks(readme, MINUTES)?;
    let printed = run(stasis, &minutes)?;
    let seconds = began.elapsed().as_secs_f32();
    println!("from the package to a restored container: {seconds:.1} s");
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
