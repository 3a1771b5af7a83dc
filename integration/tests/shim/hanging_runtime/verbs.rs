//! The low-level runtime hangs in a verb that goes through `stasis-runtime`, and in the clean-up
//! after the init process: the container can still be killed and deleted.

use std::fs;
use std::time::Duration;

use anyhow::Result;
use stasis_integration::client::containerd::{
    Code, Containerd, INIT, RuntimeOptions, Streams, code, to_any,
};
use stasis_integration::client::shim::in_host;
use stasis_integration::container::gpu_task::into;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

use super::{AFTER, RUNTIME, SIGKILL, STOPPED, STOPPING, install, start, stopped_at};

const SHIM: &str = "/usr/local/bin/containerd-shim-stasis-v2";

on_hosts!(in_host [
    stopped_pause_ends_with_init,
    stopped_resume_ends_with_init,
    stopped_checkpoint_ends_with_a_kill,
    stopped_restore_ends_by_its_deadline,
    exit_is_told_beside_a_stopped_kill_of_the_rest,
    runtime_is_described_beside_stopped_features,
]: trixie, sid_v2);

/// Version 1 ends no process that is frozen.
mod beside_the_end {
    use super::{in_host, pause_beside_the_end_of_init};

    stasis_integration::on_hosts!(in_host [pause_beside_the_end_of_init]: trixie_v2, sid_v2);
}

fn stopped_pause_ends_with_init(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "half-paused";
    start(stasis, client, id)?;
    let (pausing, _) = stopped_at("pause", stasis, client, move |client| client.pause(id))?;
    client.kill_init(id)?;
    assert_eq!(client.delete(id)?.status, 137);
    assert_ne!(code(&pausing.outcome()?), Code::Ok);
    stasis.ctr_remove_all_of(id)
}

/// The runtime has frozen the container, and the shim does not know yet.
fn pause_beside_the_end_of_init(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "ends-paused";
    let init = start(stasis, client, id)?;
    fs::write(stasis.path(AFTER), "")?;
    let (pausing, runtime) = stopped_at("pause", stasis, client, move |client| client.pause(id))?;
    fs::remove_file(stasis.path(AFTER))?;
    stasis.run(&["kill", "-KILL", &init.to_string()])?;
    assert_eq!(client.wait(id, INIT)?.status, 137);
    stasis.run(&["kill", "-CONT", &runtime])?;
    let paused = pausing.outcome()?;
    assert_eq!(client.delete(id)?.status, 137);
    assert_eq!(code(&paused), Code::NotFound, "{paused:?}");
    stasis.ctr_remove_all_of(id)
}

fn stopped_resume_ends_with_init(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "half-resumed";
    start(stasis, client, id)?;
    client.pause(id)?;
    let (resuming, _) = stopped_at("resume", stasis, client, move |client| client.resume(id))?;
    client.kill_init(id)?;
    assert_eq!(client.delete(id)?.status, 137);
    assert_ne!(code(&resuming.outcome()?), Code::Ok);
    stasis.ctr_remove_all_of(id)
}

fn stopped_checkpoint_ends_with_a_kill(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "half-dumped";
    start(stasis, client, id)?;
    let (dumping, _) = stopped_at("checkpoint", stasis, client, move |client| {
        client.checkpoint(id, &into("/images/half-dumped"))
    })?;
    client.kill_init(id)?;
    assert_ne!(code(&dumping.outcome()?), Code::Ok);
    assert_eq!(client.delete(id)?.status, 137);
    stasis.ctr_remove_all_of(id)
}

/// `stasis-runtime` waits for the low-level runtime as long as the settings allow. The caller has
/// gone by then, as containerd deletes the task.
fn stopped_restore_ends_by_its_deadline(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let (id, image) = ("half-restored", "/images/half-restored");
    start(stasis, client, id)?;
    let root = "/run/containerd/runc/default";
    let dump = ["runc", "--root", root, "checkpoint", "--image-path", image];
    stasis.run(&[&dump[..], &[id]].concat())?;
    client.wait(id, INIT)?;
    client.delete(id)?;
    stasis.set(RUNTIME, "deadlines.stalled_s = 5\n")?;
    let from = RuntimeOptions {
        criu_image_path: image.to_owned(),
        ..RuntimeOptions::default()
    };
    client.create(id, &Streams::default(), Some(to_any(&from)?))?;
    let patience = Duration::from_secs(3);
    let (restoring, _) = stopped_at("restore", stasis, client, move |client| {
        client.start_within(patience, id, INIT)
    })?;
    assert_ne!(code(&restoring.outcome()?), Code::Ok);
    client.delete(id)?;
    install(stasis)?;
    client.create(id, &Streams::default(), Some(to_any(&from)?))?;
    client.start(id, INIT)?;
    stasis.ctr_remove_all_of(id)
}

/// In a shared pid namespace the other processes have to be killed.
fn exit_is_told_beside_a_stopped_kill_of_the_rest(
    stasis: &StasisHost,
    client: &Containerd,
) -> Result<()> {
    let (sandbox, id) = ("beside", "rest");
    let pause = start(stasis, client, sandbox)?;
    let namespace = format!("pid:/proc/{pause}/ns/pid");
    stasis.start_container(client, id, &["--with-ns", &namespace], &["/bin/pause"])?;
    let mut events = client.events()?;
    let (ending, runtime) = stopped_at("kill --all", stasis, client, move |client| {
        client.kill(id, INIT, SIGKILL)
    })?;
    ending.outcome()??;
    assert_eq!(client.wait(id, INIT)?.status, 137);
    events.until(id, "exit rest 137")?;
    stasis.run(&["kill", "-KILL", &runtime])?;
    assert_eq!(client.delete(id)?.status, 137);
    stasis.ctr_remove(id)?;
    stasis.ctr_remove(sandbox)?;
    stasis.nothing_left_of(&[id, sandbox])
}

/// containerd asks before any container exists, and waits.
fn runtime_is_described_beside_stopped_features(stasis: &StasisHost, _: &Containerd) -> Result<()> {
    install(stasis)?;
    fs::write(stasis.path(STOPPING), "features")?;
    let described = stasis.run(&["timeout", "30", SHIM, "-info"])?;
    let text = String::from_utf8_lossy(&described.stdout);
    assert!(text.contains("io.containerd.stasis.v2"), "{text}");
    fs::remove_file(stasis.path(STOPPING))?;
    let stopped = fs::read_to_string(stasis.path(STOPPED))?;
    fs::remove_file(stasis.path(STOPPED))?;
    let stopped = stopped.trim().parse()?;
    stasis.until_gone(stopped)
}
