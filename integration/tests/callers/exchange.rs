//! containerd's own shim and ours are exchanged under running containers, both ways: the link that
//! containerd has recorded is pointed at the other shim, and containerd is restarted. The other
//! shim then cleans up after a killed one.

use std::fs;
use std::path::Path;

use anyhow::Result;
use stasis_integration::client::containerd::{Containerd, INIT, State, Streams, process};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{SETTINGS, StasisHost};
use stasis_integration::on_hosts;

/// The link by which containerd finds the shim.
const LINK: &str = "/usr/local/bin/containerd-shim-runc-v2";
const OURS: &str = "/usr/local/bin/containerd-shim-stasis-v2";
const THEIRS: &str = "/usr/bin/containerd-shim-runc-v2";
const RUNTIME: [&str; 2] = ["--runtime", "io.containerd.runc.v2"];
const BUNDLES: &str = "/run/containerd/io.containerd.runtime.v2.task/default";

on_hosts!(exchanged: trixie, sid_v2);

mod then_uninstalled {
    stasis_integration::on_hosts!(super::uninstalled_when_nobody_needs_it: trixie);
}

mod with_crun {
    stasis_integration::on_hosts!(super::exchanged_with_crun: trixie_v2, sid_v2);
}

fn exchanged(kind: HostKind) -> Result<()> {
    both_ways(kind, "runc")
}

fn exchanged_with_crun(kind: HostKind) -> Result<()> {
    both_ways(kind, "crun")
}

fn both_ways(kind: HostKind, low_level: &str) -> Result<()> {
    let stasis = StasisHost::of(kind)?;
    stasis.set(low_level, "")?;
    stasis.install_shim()?;
    assert!(stasis.path(THEIRS).exists());
    for (before, after) in [(OURS, THEIRS), (THEIRS, OURS)] {
        lead_to(&stasis, before)?;
        let client = start(&stasis)?;
        let ids = ["goes-on", "killed"];
        for id in ids {
            stasis.ctr_create(id, &RUNTIME, &["/bin/pause"])?;
            client.create(id, &Streams::default(), None)?;
            client.start(id, INIT)?;
            let recorded = format!("{BUNDLES}/{id}/shim-binary-path");
            assert_eq!(fs::read_to_string(stasis.path(recorded))?, LINK);
        }
        lead_to(&stasis, after)?;
        stop(&stasis)?;
        let client = start(&stasis)?;
        is_managed(&stasis, &client, ids[0])?;
        is_cleaned_up_after(&stasis, &client, ids[1])?;
        stasis.no_container_left_of(&ids)?;
        stop(&stasis)?;
    }
    Ok(())
}

/// `make uninstall`.
fn uninstalled_when_nobody_needs_it(kind: HostKind) -> Result<()> {
    const UNINSTALL: [&str; 2] = ["sh", "/root/uninstall.sh"];
    let stasis = StasisHost::of(kind)?;
    stasis.install_shim()?;
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config");
    for script in ["uninstall.sh", "shim-in-use.sh"] {
        let inside = format!("/root/{script}");
        stasis.host.install(&config.join(script), &inside)?;
    }
    lead_to(&stasis, OURS)?;
    let client = start(&stasis)?;
    let id = "needs-it";
    stasis.ctr_create(id, &RUNTIME, &["/bin/pause"])?;
    client.create(id, &Streams::default(), None)?;
    client.start(id, INIT)?;
    let refused = stasis.fails(&UNINSTALL)?;
    assert!(refused.contains(&format!("{BUNDLES}/{id}\n")), "{refused}");
    assert!(refused.contains("a link leads to it"), "{refused}");

    // The shim still runs, and calls the installed programs.
    lead_to(&stasis, THEIRS)?;
    let refused = stasis.fails(&UNINSTALL)?;
    assert!(!refused.contains(BUNDLES), "{refused}");
    assert!(refused.contains("it runs: process"), "{refused}");
    is_managed(&stasis, &client, id)?;
    stasis.until_no_shim_runs()?;
    stasis.run(&UNINSTALL)?;
    for program in [
        OURS,
        "/usr/local/bin/stasis",
        "/usr/local/bin/cuda-checkpoint",
    ] {
        assert!(!stasis.path(program).exists(), "{program}");
    }
    assert!(stasis.path(SETTINGS).exists());
    Ok(())
}

/// Points the link at the program in one step, so that there is a program at every moment.
fn lead_to(stasis: &StasisHost, program: &str) -> Result<()> {
    let script = "ln -sfn \"$0\" /usr/local/bin/.new && mv -T /usr/local/bin/.new \"$1\"";
    stasis.run(&["sh", "-ec", script, program, LINK]).map(drop)
}

fn start(stasis: &StasisHost) -> Result<Containerd> {
    stasis.containerd()?;
    Containerd::connect(&stasis.host)
}

fn stop(stasis: &StasisHost) -> Result<()> {
    let pid = stasis.run_for_text(&["pidof", "containerd"])?;
    stasis.run(&["kill", "-KILL", &pid])?;
    stasis.until_gone(pid.parse()?)
}

fn is_managed(stasis: &StasisHost, client: &Containerd, id: &str) -> Result<()> {
    assert_eq!(client.state(id, INIT)?.status(), State::Running);
    let succeeds = process(&["true"], false);
    assert_eq!(client.run_exec(id, "e1", &Streams::default(), succeeds)?, 0);
    client.kill_init(id)?;
    assert_eq!(client.delete(id)?.status, 137);
    stasis.ctr_remove(id)
}

/// Kills the shim: the one that is installed now cleans up.
pub(super) fn is_cleaned_up_after(
    stasis: &StasisHost,
    client: &Containerd,
    id: &str,
) -> Result<()> {
    let init = client.state(id, INIT)?.pid;
    let shim = stasis.parent(init)?;
    let mut events = client.events()?;
    stasis.run(&["kill", "-KILL", &shim.to_string()])?;
    events.until(id, "delete 137")?;
    stasis.until_gone(init)?;
    stasis.ctr_remove(id)
}
