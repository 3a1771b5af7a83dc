//! Damaged files, and a runtime by another name: containers without a GPU start, end, and are
//! cleaned up after when their shim is killed.

use std::fs;

use anyhow::Result;
use stasis_integration::client::containerd::{
    CheckpointOptions, Containerd, INIT, RuntimeOptions, State, Streams, process, to_any,
};
use stasis_integration::client::shim::{Shim, in_host};
use stasis_integration::host::installed::{SETTINGS, StasisHost};
use stasis_integration::on_hosts;

on_hosts!(in_host [
    damaged_settings_stop_no_container_without_a_gpu,
    spoilt_options_keep_no_container,
    program_in_front_of_runc_is_taken_for_it,
]: trixie, sid_v2);

/// A program that GPU nodes have in front of runc.
const NVIDIA: &str = "/opt/nvidia/nvidia-container-runtime";

/// A process is added and ends; the shim is killed, and nothing stays.
fn works_until_its_shim_is_killed(
    stasis: &StasisHost,
    client: &Containerd,
    id: &str,
    init: u32,
) -> Result<()> {
    let succeeds = process(&["true"], false);
    assert_eq!(client.run_exec(id, "e1", &Streams::default(), succeeds)?, 0);
    let mut events = client.events()?;
    let shim = stasis.parent(init)?;
    stasis.run(&["kill", "-KILL", &shim.to_string()])?;
    events.until(id, "delete 137")?;
    stasis.until_gone(init)?;
    stasis.ctr_remove_all_of(id)
}

fn damaged_settings_stop_no_container_without_a_gpu(
    stasis: &StasisHost,
    client: &Containerd,
) -> Result<()> {
    let id = "unsettled";
    stasis.write(SETTINGS, "runtime.path = \"runc\n[of tomorrow")?;
    stasis.start_container(client, id, &[], &["/bin/pause"])?;
    client.kill_init(id)?;
    client.delete(id)?;
    stasis.ctr_remove(id)?;
    let init = stasis.start_container(client, id, &[], &["/bin/pause"])?;
    works_until_its_shim_is_killed(stasis, client, id, init)?;
    stasis.set("runc", "")
}

fn spoilt_options_keep_no_container(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "spoilt";
    let init = stasis.start_container(client, id, &[], &["/bin/pause"])?;
    let bundle = "/run/containerd/io.containerd.runtime.v2.task/default/spoilt";
    let options = stasis.path(format!("{bundle}/options.json"));
    assert!(options.exists());
    fs::write(options, "{\"root\":")?;
    works_until_its_shim_is_killed(stasis, client, id, init)
}

fn program_in_front_of_runc_is_taken_for_it(
    stasis: &StasisHost,
    client: &Containerd,
) -> Result<()> {
    let id = "in-front";
    let script = "#!/bin/sh\nenv >> /opt/nvidia/env\nexec runc \"$@\"\n";
    stasis.script(NVIDIA, script)?;
    stasis.create_container(id, &[], &["/bin/pause"])?;
    let options = RuntimeOptions {
        binary_name: NVIDIA.to_owned(),
        ..RuntimeOptions::default()
    };
    let init = client.create(id, &Streams::default(), Some(to_any(&options)?))?;
    client.start(id, INIT)?;
    client.pause(id)?;
    assert_eq!(client.state(id, INIT)?.status(), State::Paused);
    client.resume(id)?;
    client.checkpoint(id, &CheckpointOptions::default())?;
    assert_eq!(client.state(id, INIT)?.status(), State::Running);
    gets_no_environment_of_containerds(stasis)?;
    works_until_its_shim_is_killed(stasis, client, id, init)
}

/// containerd's own shim passes its whole environment on.
fn gets_no_environment_of_containerds(stasis: &StasisHost) -> Result<()> {
    const MADE: [&str; 8] = [
        "DBUS_SESSION_BUS_ADDRESS",
        "LANG",
        "PATH",
        "TMPDIR",
        "XDG_RUNTIME_DIR",
        // Variables of the shell.
        "PWD",
        "OLDPWD",
        "_",
    ];
    let containerd = stasis.run_for_text(&["pidof", "containerd"])?;
    let theirs = stasis.path(format!("/proc/{containerd}/environ"));
    let theirs = fs::read(theirs)?;
    assert!(theirs.len() > 100, "{}", String::from_utf8_lossy(&theirs));
    let given = fs::read_to_string(stasis.path("/opt/nvidia/env"))?;
    let names = given
        .lines()
        .filter_map(|line| Some(line.split_once('=')?.0));
    let mut foreign = names.filter(|name| !MADE.contains(name));
    if Shim::under_test() == Shim::Stasis {
        assert_eq!(foreign.next(), None, "{given}");
    }
    Ok(())
}
