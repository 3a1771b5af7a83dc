//! containerd 1.6: the life of a task, a checkpoint and a restore, through our shim.

use anyhow::Result;
use stasis_integration::client::containerd::{Containerd, INIT, Output, State, Streams, process};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

const RUNTIME: [&str; 2] = ["--runtime", "io.containerd.runc.v2"];

on_hosts!(one_round: trixie);

fn one_round(kind: HostKind) -> Result<()> {
    let stasis = StasisHost::of(kind)?.through_the_shim()?;
    stasis.install_older_containerd()?;
    stasis.containerd()?;
    let version = stasis.run_for_text(&["ctr", "version"])?;
    assert!(version.contains("Version:  1.6."), "{version}");
    let client = Containerd::connect(&stasis.host)?;
    task_lives_and_ends(&stasis, &client)?;
    killed_shim_leaves_nothing(&stasis, &client)?;
    counter_is_checkpointed_and_restored(&stasis)?;
    task_outlives_containerd(&stasis)
}

fn task_lives_and_ends(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "lives";
    let mut events = client.events()?;
    stasis.ctr_create(id, &RUNTIME, &["/bin/pause"])?;
    let pid = client.create(id, &Streams::default(), None)?;
    assert_eq!(client.start(id, INIT)?, pid);
    let stdout = Output::new(&stasis.host, "/run/streams/older")?;
    let streams = Streams::new(["", &stdout.path, ""]);
    let says = process(&["echo", "said"], false);
    assert_eq!(client.run_exec(id, "e1", &streams, says)?, 0);
    assert_eq!(stdout.text()?, "said\n");
    client.pause(id)?;
    assert_eq!(client.state(id, INIT)?.status(), State::Paused);
    client.resume(id)?;
    client.kill_init(id)?;
    events.until(id, "exit lives 137")?;
    assert_eq!(client.delete(id)?.status, 137);
    stasis.ctr_remove_all_of(id)
}

fn killed_shim_leaves_nothing(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "shimless";
    stasis.ctr_create(id, &RUNTIME, &["/bin/pause"])?;
    let pid = client.create(id, &Streams::default(), None)?;
    client.start(id, INIT)?;
    let mut events = client.events()?;
    let shim = stasis.parent(pid)?;
    stasis.run(&["kill", "-KILL", &shim.to_string()])?;
    events.until(id, "delete 137")?;
    stasis.until_gone(pid)?;
    stasis.ctr_remove_all_of(id)
}

fn counter_is_checkpointed_and_restored(stasis: &StasisHost) -> Result<()> {
    stasis.ctr_run("counter", &[], &["/bin/counter", "10000"])?;
    assert_eq!(stasis.ask_until_up(10000)?, "101");
    stasis.ctr_checkpoint("counter", "counter:1")?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    stasis.ctr_remove("counter")?;
    assert!(stasis.is_silent(10000)?);
    stasis.ctr_restore("counter", "counter:1")?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    assert_eq!(stasis.last_operation()?["operation"], "restore");
    stasis.ctr_remove("counter")
}

/// containerd takes the shim's address from the file in the bundle.
fn task_outlives_containerd(stasis: &StasisHost) -> Result<()> {
    let id = "outlives";
    stasis.ctr_run(id, &[], &["/bin/counter", "10000"])?;
    assert_eq!(stasis.ask_until_up(10000)?, "101");
    let containerd = stasis.run_for_text(&["pidof", "containerd"])?;
    stasis.run(&["kill", "-KILL", &containerd])?;
    stasis.host.containerd()?;
    let client = Containerd::connect(&stasis.host)?;
    assert_eq!(client.state(id, INIT)?.status(), State::Running);
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    stasis.ctr_remove_all_of(id)
}
