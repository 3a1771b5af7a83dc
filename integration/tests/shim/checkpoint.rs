//! Checkpoints through the shim: the calls that it serves meanwhile, the ones that it refuses, and
//! its reports afterwards.

use std::time::Duration;

use anyhow::Result;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::client::containerd::{
    CheckpointOptions, Code, Containerd, Event, INIT, Resources, State, Streams, briefs, code,
    process,
};
use stasis_integration::container::gpu_task::{in_host, into, refused, soon};
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

on_hosts!(in_host [
    everybody_else_is_served,
    paused_task_stays_paused,
    impatient_caller_leaves_nothing_half_done,
    exit_follows_the_checkpoint,
]: trixie, sid_v2);

const GROUP: [&str; 2] = ["--annotation", "io.containerd.runc.v2.group=pod"];
const SIGKILL: u32 = 9;

fn everybody_else_is_served(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let pid = stasis.start_counter(client, "busy", &GROUP)?;
    // A V2 host of a machine that has version 1 as well has no metrics.
    let statistics = code(&client.metrics("busy"));
    stasis.hold_gpu_checkpoint("busy")?;
    let waiting = client.beside(|client| client.wait("busy", INIT))?;
    let checkpoint = client.beside(|client| client.checkpoint("busy", &into("/images/busy")))?;
    stasis.until_phase("busy", "gpu checkpoint")?;
    questions_are_answered(client, pid, statistics)?;
    what_would_change_it_is_refused(client)?;
    another_of_the_shim_lives_and_dies(stasis, client, pid)?;
    assert!(checkpoint.goes_on(), "the checkpoint was waited for");
    stasis.let_gpu_checkpoint_go()?;
    checkpoint.outcome()??;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    client.start("busy", "added")?;
    assert_eq!(client.wait("busy", "added")?.status, 4);
    assert!(waiting.goes_on(), "{:?}", waiting.outcome());
    client.kill("busy", INIT, SIGKILL)?;
    assert_eq!(waiting.outcome()??.status, 137);
    client.delete("busy")?;
    stasis.ctr_remove("busy")
}

fn questions_are_answered(client: &Containerd, pid: u32, statistics: Code) -> Result<()> {
    let state = soon("state", || client.state("busy", INIT))??;
    assert_eq!((state.status(), state.pid), (State::Running, pid));
    let metrics = soon("metrics", || client.metrics("busy"))?;
    assert_eq!(code(&metrics), statistics);
    let pids = soon("pids", || client.pids("busy"))??;
    // The process that copies for the driver is in the list meanwhile, too.
    assert!(pids.contains(&(pid, None)), "{pids:?}");
    let added = process(&["sh", "-c", "exit 4"], false);
    soon("exec", || {
        client.exec("busy", "added", &Streams::default(), added)
    })??;
    let state = soon("state of the exec", || client.state("busy", "added"))??;
    assert_eq!(state.status(), State::Created);
    Ok(())
}

fn what_would_change_it_is_refused(client: &Containerd) -> Result<()> {
    let being = "that is being checkpointed";
    refused("a second checkpoint", being, || {
        client.checkpoint("busy", &into("/images/second"))
    })?;
    refused("pause", being, || client.pause("busy"))?;
    refused("resume", being, || client.resume("busy"))?;
    refused("delete", being, || client.delete("busy"))?;
    refused("start", being, || client.start("busy", INIT))?;
    refused("start of an exec", being, || client.start("busy", "added"))?;
    let limits = Resources(serde_json::json!({ "pids": { "limit": 50 } }));
    refused("update", being, || client.update("busy", &limits))
}

fn another_of_the_shim_lives_and_dies(
    stasis: &StasisHost,
    client: &Containerd,
    pid: u32,
) -> Result<()> {
    let streams = Streams::default();
    stasis.create_gpu_container("other", &GROUP, &["/bin/pause"])?;
    let other = soon("create", || client.create("other", &streams, None))??;
    assert_eq!(stasis.parent(other)?, stasis.parent(pid)?, "of one shim");
    soon("start", || client.start("other", INIT))??;
    client.exec("other", "e1", &streams, process(&["true"], false))?;
    soon("start of an exec", || client.start("other", "e1"))??;
    soon("pause", || client.pause("other"))??;
    soon("resume", || client.resume("other"))??;
    soon("kill", || client.kill("other", INIT, SIGKILL))??;
    let ended = soon("wait", || client.wait("other", INIT))??;
    assert_eq!(ended.status, 137);
    soon("delete", || client.delete("other"))??;
    stasis.ctr_remove("other")
}

/// As for clients that copy the container's files afterwards.
fn paused_task_stays_paused(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    stasis.start_counter(client, "paused", &[])?;
    client.pause("paused")?;
    let waiting = client.beside(|client| client.wait("paused", INIT))?;
    stasis.hold_gpu_checkpoint("paused")?;
    let checkpoint =
        client.beside(|client| client.checkpoint("paused", &into("/images/paused")))?;
    stasis.until_phase("paused", "gpu checkpoint")?;
    let state = soon("state", || client.state("paused", INIT))??;
    assert_eq!(state.status(), State::Paused);
    refused("resume", "that is being checkpointed", || {
        client.resume("paused")
    })?;
    assert!(checkpoint.goes_on());
    stasis.let_gpu_checkpoint_go()?;
    checkpoint.outcome()??;
    assert_eq!(client.state("paused", INIT)?.status(), State::Paused);
    assert!(stasis.is_silent(10000)?);
    client.resume("paused")?;
    // The question sent while it was paused was answered first.
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("103"));
    assert!(waiting.goes_on(), "{:?}", waiting.outcome());
    client.kill("paused", INIT, SIGKILL)?;
    assert_eq!(waiting.outcome()??.status, 137);
    client.delete("paused")?;
    stasis.ctr_remove("paused")
}

/// The shim learns of a caller's deadline, and has to finish the operation that it has begun.
fn impatient_caller_leaves_nothing_half_done(
    stasis: &StasisHost,
    client: &Containerd,
) -> Result<()> {
    stasis.start_counter(client, "hasty", &[])?;
    stasis.hold_gpu_checkpoint("hasty")?;
    let hasty = client.beside(|client| {
        let patience = Duration::from_secs(3);
        client.checkpoint_within(patience, "hasty", &into("/images/hasty"))
    })?;
    stasis.until_phase("hasty", "gpu checkpoint")?;
    // Versions of containerd differ in the code.
    assert_ne!(code(&hasty.outcome()?), Code::Ok);
    assert!(stasis.has_record("hasty"), "the checkpoint was waited for");
    stasis.let_gpu_checkpoint_go()?;
    wait_until_clear(|| Ok(stasis.has_record("hasty").then(|| "a record".to_owned())))?;
    wait_until_clear(|| {
        let answer = client.checkpoint("hasty", &into("/images/again"));
        Ok(answer.err().map(|status| status.to_string()))
    })?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    stasis.ctr_remove("hasty")
}

fn exit_follows_the_checkpoint(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let mut events = client.events()?;
    let pid = stasis.start_counter(client, "exit", &[])?;
    let options = CheckpointOptions {
        exit: true,
        ..into("/images/exit")
    };
    client.checkpoint("exit", &options)?;
    assert_eq!(client.wait("exit", INIT)?.status, 137);
    assert_eq!(client.delete("exit")?.status, 137);
    let story = events.until("exit", "delete 137")?;
    let expected = [
        "create",
        "start",
        "checkpointed",
        "exit exit 137",
        "delete 137",
    ];
    assert_eq!(briefs(&story), expected);
    let checkpointed = Event {
        checkpoint: "/images/exit".to_owned(),
        ..story[2].clone()
    };
    assert_eq!(story[2], checkpointed);
    assert_eq!((story[3].pid, story[4].pid), (pid, pid));
    stasis.ctr_remove("exit")
}
