//! stasis is upgraded under a running container: its shim lives on, and calls the newly installed
//! programs.

use anyhow::{Result, ensure};
use stasis_integration::client::containerd::{Containerd, INIT, State};
use stasis_integration::container::gpu_task::{in_host, into, refused};
use stasis_integration::host::installed::{PROGRAM, RUNTIME, StasisHost};
use stasis_integration::on_hosts;

use crate::exchange::is_cleaned_up_after;

/// The shim, in place of containerd's own.
const SHIM: &str = "/usr/local/bin/containerd-shim-runc-v2";
/// The path of the engine that [`another_engine`] installs.
const ENGINE: &str = "/opt/engine/stasis-runtime";
/// An engine that takes the shim for one of another version.
const SCRIPT: &str = r#"#!/bin/sh
given=$1
shift
[ "$given" = --stasis-interface=1 ] || { echo "no version: $given" >&2; exit 9; }
exec /opt/engine/stasis-runtime --stasis-interface=VERSION "$@"
"#;

on_hosts!(in_host [
    old_shim_calls_a_new_engine,
    new_shim_calls_an_old_engine,
    another_runtime_has_an_image_pulled,
    programs_are_replaced_under_a_container,
]: trixie, sid_v2);

fn old_shim_calls_a_new_engine(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    begins_nothing_and_ends_everything(stasis, client, "0", "install the version again")
}

fn new_shim_calls_an_old_engine(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    begins_nothing_and_ends_everything(stasis, client, "2", "of the shim's version beside it")
}

/// Its job, which may have other fields, is answered with what to do.
fn another_runtime_has_an_image_pulled(stasis: &StasisHost, _: &Containerd) -> Result<()> {
    let call =
        "echo '{}' >/root/job && \"$0\" stasis-pull --stasis-interface=2 2</root/job || true";
    let answer = stasis.run_for_text(&["sh", "-ec", call, PROGRAM])?;
    for part in [
        r#""kind":"interface-version""#,
        "install both of one version",
    ] {
        ensure!(answer.contains(part), "{answer:?}");
    }
    Ok(())
}

/// The checkpoint is refused with a way out; everything else works.
fn begins_nothing_and_ends_everything(
    stasis: &StasisHost,
    client: &Containerd,
    version: &str,
    advice: &str,
) -> Result<()> {
    let id = "other-version";
    stasis.start_counter(client, id, &[])?;
    another_engine(stasis, version)?;
    for part in ["[interface-version]", advice] {
        refused("checkpoint", part, || {
            client.checkpoint(id, &into("/images/other-version"))
        })?;
    }
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    client.pause(id)?;
    assert_eq!(client.state(id, INIT)?.status(), State::Paused);
    client.resume(id)?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("103"));

    own_engine(stasis)?;
    client.checkpoint(id, &into("/images/other-version"))?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("104"));

    another_engine(stasis, version)?;
    ends_with_its_shim(stasis, client, id)?;
    own_engine(stasis)
}

/// Replaces the programs as a package does: a new file takes the name, in one step.
fn programs_are_replaced_under_a_container(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "upgraded";
    stasis.start_counter(client, id, &[])?;
    for program in [RUNTIME, SHIM] {
        let script = "cp \"$0\" \"$0.new\" && mv -T \"$0.new\" \"$0\"";
        stasis.run(&["sh", "-ec", script, program])?;
    }
    client.checkpoint(id, &into("/images/upgraded"))?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    ends_with_its_shim(stasis, client, id)
}

fn another_engine(stasis: &StasisHost, version: &str) -> Result<()> {
    let script = SCRIPT.replace("VERSION", version);
    stasis.run(&["install", "-D", RUNTIME, ENGINE])?;
    stasis.script("/opt/engine/script", &script)?;
    let replace = "cp -p /opt/engine/script \"$0.new\" && mv -T \"$0.new\" \"$0\"";
    stasis.run(&["sh", "-ec", replace, RUNTIME]).map(drop)
}

fn own_engine(stasis: &StasisHost) -> Result<()> {
    let script = "cp -p \"$0\" \"$1.new\" && mv -T \"$1.new\" \"$1\"";
    stasis
        .run(&["sh", "-ec", script, ENGINE, RUNTIME])
        .map(drop)
}

/// Kills the shim, and checks that another version cleans up after it and that nothing is left.
fn ends_with_its_shim(stasis: &StasisHost, client: &Containerd, id: &str) -> Result<()> {
    is_cleaned_up_after(stasis, client, id)?;
    stasis.nothing_left_of(&[id])
}
