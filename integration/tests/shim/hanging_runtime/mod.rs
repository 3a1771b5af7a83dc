//! A low-level runtime that hangs: only calls that depend on it wait, and a call of it that no
//! caller wants any more is ended.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::client::containerd::{
    Answer, Beside, Code, Containerd, INIT, Resources, Streams, code, process,
};
use stasis_integration::client::shim::in_host;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

mod verbs;

on_hosts!(in_host [
    container_dies_beside_a_stopped_start,
    container_dies_beside_a_stopped_kill,
    kill_is_answered_beside_the_last_delete,
    exit_is_told_beside_a_stopped_update,
    start_ends_with_its_caller,
    pause_is_refused_beside_a_stopped_start,
    create_ends_with_its_caller,
    container_of_another_bundle_stays,
]: trixie, sid_v2);

const SIGKILL: u32 = 9;

/// A runtime that stops itself at the verb that [`STOPPING`] names, or after it.
const RUNTIME: &str = "/opt/stopping/runc";
const SCRIPT: &str = r#"#!/bin/sh
verb=$(cat /opt/stopping/now 2>/dev/null)
case " $* " in *" ${verb:-none} "*)
    if [ -e /opt/stopping/after ]; then runc "$@"; ran=$?; fi
    echo $$ > /opt/stopping/stopped
    kill -STOP $$
    [ -z "$ran" ] || exit $ran
esac
exec runc "$@"
"#;
/// A container of the same name in containerd's directory of runc.
const ANOTHER: &str = r#"
mkdir -p /opt/another/rootfs && cd /opt/another
ctr image mount localhost/stasis-test:latest rootfs >/dev/null
runc spec
sed -i 's/"terminal": true/"terminal": false/; s|"sh"|"/bin/pause"|' config.json
runc --root /run/containerd/runc/default run --detach shared-name </dev/null >/dev/null 2>&1
"#;
const STOPPING: &str = "/opt/stopping/now";
const STOPPED: &str = "/opt/stopping/stopped";
const AFTER: &str = "/opt/stopping/after";

/// Starts a container whose runtime is [`RUNTIME`].
fn start(stasis: &StasisHost, client: &Containerd, id: &str) -> Result<u32> {
    install(stasis)?;
    stasis.start_container(client, id, &[], &["/bin/pause"])
}

fn install(stasis: &StasisHost) -> Result<()> {
    stasis.script(RUNTIME, SCRIPT)?;
    stasis.set(RUNTIME, "")
}

/// The deadline of a caller that has to be gone when the runtime has stopped itself.
const PATIENCE: Duration = Duration::from_secs(10);

/// Makes a call beside, and waits until the runtime has stopped itself at a verb. Returns its pid.
fn stopped_at<T: Send + 'static>(
    verb: &str,
    stasis: &StasisHost,
    client: &Containerd,
    calls: impl FnOnce(&Containerd) -> T + Send + 'static,
) -> Result<(Beside<T>, String)> {
    let stopped = stasis.path(STOPPED);
    fs::write(stasis.path(STOPPING), verb)?;
    let beside = client.beside(calls)?;
    wait_until_clear(|| {
        let pid = fs::read_to_string(&stopped).unwrap_or_default();
        let stat = stasis.path(format!("/proc/{}/stat", pid.trim()));
        let stat = fs::read_to_string(stat).unwrap_or_default();
        Ok((!stat.contains(") T ")).then(|| format!("the runtime {pid:?} is {stat:?}")))
    })?;
    fs::remove_file(stasis.path(STOPPING))?;
    let pid = fs::read_to_string(&stopped)?;
    fs::remove_file(stopped)?;
    Ok((beside, pid.trim().to_owned()))
}

/// Starts a process whose runtime stops itself.
fn stopped_start(
    stasis: &StasisHost,
    client: &Containerd,
    id: &'static str,
    patience: Duration,
) -> Result<Beside<Answer<u32>>> {
    client.exec(
        id,
        "stopped",
        &Streams::default(),
        process(&["true"], false),
    )?;
    let (starting, _) = stopped_at("exec", stasis, client, move |client| {
        client.start_within(patience, id, "stopped")
    })?;
    Ok(starting)
}

/// Checks that another process starts and ends.
fn another_runs(client: &Containerd, id: &str) -> Result<()> {
    let succeeds = process(&["true"], false);
    assert_eq!(
        client.run_exec(id, "other", &Streams::default(), succeeds)?,
        0
    );
    Ok(())
}

fn container_dies_beside_a_stopped_start(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "dies";
    let pid = start(stasis, client, id)?;
    let mut events = client.events()?;
    let starting = stopped_start(stasis, client, id, Duration::from_secs(60))?;
    another_runs(client, id)?;
    client.kill_init(id)?;
    assert_eq!(code(&starting.outcome()?), Code::FailedPrecondition);
    events.until(id, "exit dies 137")?;
    client.delete_exec(id, "stopped")?;
    client.delete(id)?;
    assert!(!stasis.lives(pid));
    stasis.ctr_remove_all_of(id)
}

fn container_dies_beside_a_stopped_kill(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "stubborn";
    start(stasis, client, id)?;
    let (hangs, runtime) = stopped_at("kill", stasis, client, |client| {
        client.kill("stubborn", INIT, 15)
    })?;
    client.kill_init(id)?;
    assert!(hangs.goes_on(), "the runtime did not hang");
    stasis.run(&["kill", "-KILL", &runtime])?;
    assert_ne!(code(&hangs.outcome()?), Code::Ok);
    client.delete(id)?;
    stasis.ctr_remove_all_of(id)
}

/// containerd closes its connection to the shim at the shim's answer to Shutdown.
fn kill_is_answered_beside_the_last_delete(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "answered";
    start(stasis, client, id)?;
    fs::write(stasis.path(AFTER), "")?;
    let (killing, runtime) = stopped_at("kill", stasis, client, |client| {
        client.kill("answered", INIT, SIGKILL)
    })?;
    fs::remove_file(stasis.path(AFTER))?;
    assert_eq!(client.wait(id, INIT)?.status, 137);
    let deleting = client.beside(|client| client.delete("answered").map(drop))?;
    let record = stasis.path("/run/containerd/runc/default").join(id);
    wait_until_clear(|| Ok(record.exists().then(|| "runc's record".to_owned())))?;
    // Shutdown comes now.
    sleep(Duration::from_millis(500));
    assert!(killing.goes_on(), "the runtime did not hang");
    stasis.run(&["kill", "-CONT", &runtime])?;
    assert_eq!(code(&killing.outcome()?), Code::Ok);
    deleting.outcome()??;
    stasis.ctr_remove_all_of(id)
}

fn exit_is_told_beside_a_stopped_update(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "updated";
    start(stasis, client, id)?;
    let (hangs, runtime) = stopped_at("update", stasis, client, |client| {
        client.update("updated", &Resources(json!({})))
    })?;
    client.kill_init(id)?;
    assert!(hangs.goes_on(), "the runtime did not hang");
    stasis.run(&["kill", "-KILL", &runtime])?;
    assert_ne!(code(&hangs.outcome()?), Code::Ok);
    stasis.ctr_remove_all_of(id)
}

fn start_ends_with_its_caller(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "gone";
    start(stasis, client, id)?;
    let starting = stopped_start(stasis, client, id, PATIENCE)?;
    assert_ne!(code(&starting.outcome()?), Code::Ok);
    // The shim learns of the deadline by itself.
    wait_until_clear(|| {
        let deleted = client.delete_exec(id, "stopped");
        Ok(deleted.err().map(|status| status.to_string()))
    })?;
    another_runs(client, id)?;
    client.pause(id)?;
    client.resume(id)?;
    stasis.ctr_remove_all_of(id)
}

/// A process that is half-way into the container would be frozen, or dumped, half-way.
fn pause_is_refused_beside_a_stopped_start(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "waits";
    start(stasis, client, id)?;
    let starting = stopped_start(stasis, client, id, Duration::from_secs(30))?;
    let refused = client.pause(id);
    assert_eq!(code(&refused), Code::FailedPrecondition, "{refused:?}");
    another_runs(client, id)?;
    client.kill(id, INIT, SIGKILL)?;
    assert_ne!(code(&starting.outcome()?), Code::Ok);
    stasis.ctr_remove_all_of(id)
}

/// Before and after the runtime has made something.
fn create_ends_with_its_caller(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    install(stasis)?;
    for id in ["early", "late"] {
        stasis.create_container(id, &[], &["/bin/pause"])?;
        if id == "late" {
            fs::write(stasis.path(AFTER), "")?;
        }
        let (creating, _) = stopped_at("create", stasis, client, move |client| {
            client.try_create(PATIENCE, id)
        })?;
        assert_ne!(code(&creating.outcome()?), Code::Ok);
        stasis.nothing_left_of(&[id])?;
    }
    fs::remove_file(stasis.path(AFTER))?;
    for id in ["early", "late"] {
        client.create(id, &Streams::default(), None)?;
        client.start(id, INIT)?;
        stasis.ctr_remove(id)?;
    }
    stasis.nothing_left_of(&["early", "late"])
}

/// Users of runc beside containerd may have given the same name.
fn container_of_another_bundle_stays(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "shared-name";
    install(stasis)?;
    stasis.create_container(id, &[], &["/bin/pause"])?;
    stasis.run(&["sh", "-c", ANOTHER])?;
    let (creating, _) = stopped_at("create", stasis, client, move |client| {
        client.try_create(PATIENCE, id)
    })?;
    assert_ne!(code(&creating.outcome()?), Code::Ok);
    let runc = ["runc", "--root", "/run/containerd/runc/default"];
    // The shim has ended, and has searched by then.
    stasis.until_no_shim_runs()?;
    let state = stasis.run(&[&runc[..], &["state", id]].concat())?;
    let state = String::from_utf8(state.stdout)?;
    assert!(state.contains("\"status\": \"running\""), "{state}");
    stasis.run(&[&runc[..], &["delete", "--force", id]].concat())?;
    stasis.run(&["umount", "/opt/another/rootfs"])?;
    stasis.ctr_remove_all_of(id)
}
