//! The shim's unasked reports: its events, their order, and the end of a wait.

use std::thread;

use anyhow::{Context, Result};
use stasis_integration::client::containerd::{
    Containerd, Event, INIT, State, Streams, briefs, process,
};
use stasis_integration::client::shim::{Shim, in_host};
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

on_hosts!(in_host [
    events_come_in_order,
    first_process_ends_after_its_execs,
    exec_that_ends_at_once_is_told_in_order,
    pause_and_resume_are_told,
    wait_lasts_while_paused,
]: trixie, sid_v2);

fn event<'all>(events: &'all [Event], brief: &str) -> Result<&'all Event> {
    let mut found = events.iter().filter(|event| event.brief() == brief);
    found.next().with_context(|| format!("no event {brief:?}"))
}

fn events_come_in_order(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let mut events = client.events()?;
    let (id, other, streams) = ("order", "other", Streams::default());
    // containerd's own shim may lose its last event when it ends; another container keeps it alive.
    let group = ["--annotation", "io.containerd.runc.v2.group=other"];
    stasis.start_container(client, other, &group, &["/bin/pause"])?;
    let pid = stasis.start_container(client, id, &group, &["/bin/pause"])?;
    client.exec(id, "e1", &streams, process(&["sh", "-c", "exit 3"], false))?;
    let exec_pid = client.start(id, "e1")?;
    client.wait(id, "e1")?;
    client.delete_exec(id, "e1")?;
    client.kill(id, INIT, 9)?;
    client.wait(id, INIT)?;
    client.delete(id)?;

    let found = events.until(id, "delete 137")?;
    let expected = [
        "create",
        "start",
        "exec-added e1",
        "exec-started e1",
        "exit e1 3",
        "exit order 137",
        "delete 137",
    ];
    assert_eq!(briefs(&found), expected);
    for (brief, of) in [
        ("create", pid),
        ("start", pid),
        ("exec-started e1", exec_pid),
        ("exit e1 3", exec_pid),
        ("exit order 137", pid),
        ("delete 137", pid),
    ] {
        assert_eq!(event(&found, brief)?.pid, of, "{brief}");
    }
    stasis.ctr_remove(id)?;
    stasis.ctr_remove(other)?;
    if Shim::under_test() != Shim::Go {
        events.until(other, "delete 137")?;
    }
    Ok(())
}

/// A client that learns of a task's end may forget its execs.
fn first_process_ends_after_its_execs(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let mut events = client.events()?;
    let (id, streams) = ("last", Streams::default());
    stasis.start_container(client, id, &[], &["/bin/pause"])?;
    let execs = ["e1", "e2", "e3"];
    for exec in execs {
        client.exec(id, exec, &streams, process(&["/bin/pause"], false))?;
        client.start(id, exec)?;
    }
    client.kill(id, INIT, 9)?;
    let found = briefs(&events.until(id, "exit last 137")?);
    let mut ended: Vec<_> = found
        .iter()
        .filter(|brief| brief.starts_with("exit"))
        .collect();
    assert_eq!(ended.pop().map(String::as_str), Some("exit last 137"));
    ended.sort();
    assert_eq!(ended, ["exit e1 137", "exit e2 137", "exit e3 137"]);
    for exec in execs {
        assert_eq!(client.wait(id, exec)?.status, 137);
        assert_eq!(client.delete_exec(id, exec)?.status, 137);
    }
    stasis.ctr_remove(id)
}

/// The process may be gone before the runtime has reported its pid.
fn exec_that_ends_at_once_is_told_in_order(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let mut events = client.events()?;
    let (id, streams) = ("quick", Streams::default());
    stasis.start_container(client, id, &[], &["/bin/pause"])?;
    for number in 0..10 {
        let exec = format!("e{number}");
        client.exec(id, &exec, &streams, process(&["true"], false))?;
        let pid = client.start(id, &exec)?;
        let ending = format!("exit {exec} 0");
        let found = events.until(id, &ending)?;
        assert_eq!(event(&found, &ending)?.pid, pid);
        let of_exec = found.iter().filter(|event| event.process == exec);
        let order: Vec<_> = of_exec.map(|event| event.kind.as_str()).collect();
        assert_eq!(order, ["exec-added", "exec-started", "exit"]);
        client.delete_exec(id, &exec)?;
    }
    client.kill(id, INIT, 9)?;
    events.until(id, "exit quick 137")?;
    assert_eq!(events.count(id, "exit quick 137"), 1);
    assert_eq!(events.count(id, "exit e0 0"), 1);
    stasis.ctr_remove(id)
}

fn pause_and_resume_are_told(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let mut events = client.events()?;
    let id = "pauses";
    stasis.start_container(client, id, &[], &["/bin/pause"])?;
    client.pause(id)?;
    assert_eq!(client.state(id, INIT)?.status(), State::Paused);
    client.resume(id)?;
    assert_eq!(client.state(id, INIT)?.status(), State::Running);
    let found = events.until(id, "resumed")?;
    assert_eq!(briefs(&found), ["create", "start", "paused", "resumed"]);
    stasis.ctr_remove(id)
}

/// A wait does not return because of the pause, and does not get lost in it.
fn wait_lasts_while_paused(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "waits";
    let pid = stasis.start_container(client, id, &[], &["/bin/pause"])?;
    let waiter = client.again()?;
    let waiting = thread::spawn(move || waiter.wait("waits", INIT));
    client.pause(id)?;
    // As many calls as a wait that does not wait would need to return.
    for _ in 0..20 {
        assert_eq!(client.state(id, INIT)?.status(), State::Paused);
    }
    assert!(!waiting.is_finished());
    assert!(stasis.lives(pid));
    client.resume(id)?;
    assert_eq!(client.state(id, INIT)?.status(), State::Running);
    assert!(!waiting.is_finished());
    client.kill(id, INIT, 9)?;
    let ended = waiting
        .join()
        .map_err(|_| anyhow::anyhow!("the wait panicked"))??;
    assert_eq!(ended.status, 137);
    stasis.ctr_remove(id)?;
    stasis.nothing_left_of(&["order", "other", "last", "quick", "pauses", id])
}
