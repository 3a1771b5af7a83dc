//! Signals for a task that is being checkpointed: signals that end it end the checkpoint first, if
//! that is possible, and others wait.

use anyhow::{Context, Result};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::client::containerd::{Containerd, INIT, Output, State, Streams, briefs};
use stasis_integration::container::gpu_task::{in_host, into, soon};
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

on_hosts!(in_host [
    kill_ends_the_checkpoint_and_the_task,
    kill_ends_a_paused_task,
    term_ends_the_checkpoint_and_the_task,
    other_signals_wait,
    dump_is_not_cut_off,
]: trixie, sid_v2);

const COUNTER: [&str; 2] = ["/bin/counter", "10000"];
const SIGKILL: u32 = 9;
const SIGUSR1: u32 = 10;
const SIGTERM: u32 = 15;

fn kill_ends_the_checkpoint_and_the_task(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    stasis.start_counter(client, "killed", &[])?;
    signal_ends_both(stasis, client, "killed", (SIGKILL, 137))
}

/// The workload has a handler, and reaches it.
fn term_ends_the_checkpoint_and_the_task(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    stasis.start_counter(client, "terminated", &[])?;
    signal_ends_both(stasis, client, "terminated", (SIGTERM, 0))
}

/// Most callers pause the task for its checkpoint; the signal reaches it all the same.
fn kill_ends_a_paused_task(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    stasis.start_counter(client, "stiff", &[])?;
    client.pause("stiff")?;
    signal_ends_both(stasis, client, "stiff", (SIGKILL, 137))
}

/// Signals a task during a checkpoint; it ends with `status` then.
fn signal_ends_both(
    stasis: &StasisHost,
    client: &Containerd,
    id: &'static str,
    (signal, status): (u32, u32),
) -> Result<()> {
    let mut events = client.events()?;
    let pid = client.state(id, INIT)?.pid;
    assert_eq!(stasis.gpu_processes()?, 1);
    let image = format!("/images/{id}");
    let manifest = stasis.path(format!("{image}/stasis.json"));
    stasis.hold_gpu_checkpoint(id)?;
    let checkpoint = client.beside(move |client| client.checkpoint(id, &into(&image)))?;
    stasis.until_phase(id, "gpu checkpoint")?;
    soon("kill", || client.kill(id, INIT, signal))??;
    assert!(checkpoint.goes_on() && stasis.lives(pid));
    stasis.let_gpu_checkpoint_go()?;
    let ended = checkpoint.outcome()?.err();
    let message = ended.context("the checkpoint was ended")?.to_string();
    assert_contains(&message, &["a signal asked for it to end"]);
    assert!(!manifest.exists());
    assert_eq!(client.wait(id, INIT)?.status, status);
    assert_eq!(stasis.gpu_processes()?, 0);
    assert_eq!(client.delete(id)?.status, status);
    assert!(!stasis.has_record(id));
    let delete = format!("delete {status}");
    let story = events.until(id, &delete)?;
    let exit = format!("exit {id} {status}");
    // The event of an earlier pause may come late.
    let mut story = briefs(&story);
    story.retain(|brief| brief != "paused");
    assert_eq!(story, [exit, delete]);
    stasis.ctr_remove_all_of(id)
}

fn other_signals_wait(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let script = "trap 'echo told' USR1; /bin/counter 10000 & while :; do wait; done";
    stasis.create_gpu_container("told", &[], &["/bin/sh", "-c", script])?;
    let output = Output::new(&stasis.host, "/run/told/stdout")?;
    let streams = Streams::new(["", &output.path, ""]);
    client.create("told", &streams, None)?;
    client.start("told", INIT)?;
    assert_eq!(stasis.ask_until_up(10000)?, "101");
    let holds = [("checkpoint told", "away"), ("restore told", "back")];
    stasis.hold_driver_at(&holds)?;
    let checkpoint = client.beside(|client| client.checkpoint("told", &into("/images/told")))?;
    stasis.until_phase("told", "gpu checkpoint")?;
    soon("kill", || client.kill("told", INIT, SIGUSR1))??;
    stasis.let_driver_go("away")?;
    stasis.until_phase("told", "gpu restore")?;
    assert_eq!(output.so_far(), "");
    stasis.let_driver_go("back")?;
    checkpoint.outcome()??;
    output.expect("told")?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    stasis.ctr_remove("told")
}

/// Once CRIU dumps, no signal ends it; not even without GPU state, where only the low-level runtime
/// is between CRIU and the signal.
fn dump_is_not_cut_off(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    for (id, command) in [("plain", &["/bin/pause"][..]), ("gpu", &COUNTER)] {
        let mut events = client.events()?;
        stasis.start_gpu_task(client, id, &[], command)?;
        if id == "gpu" {
            assert_eq!(stasis.ask_until_up(10000)?, "101");
        }
        stasis.hold_criu("post-dump")?;
        let image = format!("/images/{id}");
        let checkpoint = client.beside(move |client| client.checkpoint(id, &into(&image)))?;
        stasis.until_criu_is_held()?;
        soon("kill", || client.kill(id, INIT, SIGTERM))??;
        // When this signal arrives the task has ended, and no process gets it.
        soon("kill", || client.kill(id, INIT, SIGUSR1))??;
        assert_eq!(client.state(id, INIT)?.status(), State::Running);
        assert!(checkpoint.goes_on(), "{:?}", checkpoint.outcome()?);
        stasis.let_criu_go()?;
        checkpoint.outcome()??;
        assert_eq!(client.wait(id, INIT)?.status, 0);
        client.delete(id)?;
        let story = events.until(id, "delete 0")?;
        let exit = format!("exit {id} 0");
        let expected = ["create", "start", "checkpointed", &exit, "delete 0"];
        assert_eq!(briefs(&story), expected);
        stasis.ctr_remove(id)?;
    }
    Ok(())
}
