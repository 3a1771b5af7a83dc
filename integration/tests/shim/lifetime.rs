//! The lifetime of shims: containers that share one, daemons that come back, kills, and leftovers
//! that must not exist.

use std::fs;
use std::thread;

use anyhow::{Context, Result, ensure};
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::client::containerd::{
    Code, Containerd, INIT, Input, Output, State, Streams, code, process,
};
use stasis_integration::client::shim::in_host;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

/// The number of containers that are started at once.
const MANY: usize = 50;

on_hosts!(in_host [
    containers_of_a_sandbox_share_a_shim,
    containers_of_a_group_share_a_shim,
    killed_shim_leaves_nothing,
    many_starts_at_once_leave_nothing,
    shim_may_open_as_many_files_as_anybody,
]: trixie, sid_v2);

mod with_a_new_containerd {
    stasis_integration::on_hosts!(super::tasks_outlive_containerd: trixie, sid_v2);
}

fn containers_of_a_sandbox_share_a_shim(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    containers_share_a_shim(stasis, client, "io.kubernetes.cri.sandbox-id")
}

fn containers_of_a_group_share_a_shim(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    containers_share_a_shim(stasis, client, "io.containerd.runc.v2.group")
}

fn containers_share_a_shim(stasis: &StasisHost, client: &Containerd, key: &str) -> Result<()> {
    let (first, second, alone) = ("pod", "in-pod", "alone");
    let annotation = format!("{key}={first}");
    let options = ["--annotation", annotation.as_str()];
    stasis.start_container(client, first, &options, &["/bin/pause"])?;
    let shims = stasis.shims()?;
    assert_eq!(shims.len(), 1, "{shims:?}");
    stasis.start_container(
        client,
        second,
        &options,
        &["sh", "-c", "exec tail -f /dev/null"],
    )?;
    assert_eq!(stasis.shims()?, shims);
    stasis.start_container(client, alone, &[], &["/bin/pause"])?;
    assert_eq!(stasis.shims()?.len(), 2);
    stasis.ctr_remove(alone)?;

    // Calls for one of them do not affect the other.
    let streams = Streams::default();
    client.exec(
        second,
        "e1",
        &streams,
        process(&["sh", "-c", "exit 8"], false),
    )?;
    client.start(second, "e1")?;
    assert_eq!(client.wait(second, "e1")?.status, 8);
    assert_eq!(code(&client.state(first, "e1")), Code::NotFound);
    client.kill_init(second)?;
    client.delete(second)?;
    assert_eq!(client.state(first, INIT)?.status(), State::Running);
    wait_until_clear(|| {
        let left = stasis.shims()?;
        Ok((left != shims).then(|| format!("shims {left:?}")))
    })?;
    stasis.ctr_remove(second)?;
    stasis.ctr_remove(first)?;
    stasis.nothing_left_of(&[first, second, alone])
}

fn killed_shim_leaves_nothing(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let mut events = client.events()?;
    let id = "orphan";
    let command = ["sh", "-c", "/bin/pause & wait"];
    let init = stasis.start_container(client, id, &[], &command)?;
    client.exec(
        id,
        "e1",
        &Streams::default(),
        process(&["/bin/pause"], false),
    )?;
    client.start(id, "e1")?;
    wait_until_clear(|| {
        let pids = client.pids(id)?;
        Ok((pids.len() != 3).then(|| format!("{pids:?}")))
    })?;
    let pids = client.pids(id)?;
    let shims = stasis.shims()?;
    ensure!(shims.len() == 1, "one shim and not {shims:?}");
    stasis.run(&["kill", "-KILL", &shims[0].to_string()])?;

    let found = events.until(id, "exit orphan 137")?;
    assert_eq!(found.last().map(|event| event.pid), Some(init));
    events.until(id, "delete 137")?;
    assert_eq!(code(&client.state(id, INIT)), Code::NotFound);
    wait_until_clear(|| {
        let alive = pids.iter().find(|(pid, _)| stasis.lives(*pid));
        Ok(alive.map(|(pid, _)| format!("process {pid}")))
    })?;
    stasis.run(&["ctr", "c", "rm", id])?;
    stasis.no_container_left_of(&[id])?;
    // The name can be used again; that removes the socket, which a killed shim cannot.
    let (status, message) = stasis.shim_run_status(id, &["--rm"], &["sh", "-c", "exit 11"])?;
    assert_eq!(status, 11, "{message}");
    stasis.nothing_left_of(&[id])
}

fn many_starts_at_once_leave_nothing(stasis: &StasisHost, _: &Containerd) -> Result<()> {
    let ids: Vec<String> = (0..MANY).map(|number| format!("many-{number}")).collect();
    let found = thread::scope(|scope| {
        let start = |(number, id): (usize, &'_ String)| {
            let (script, id) = (format!("exit {number}"), id.clone());
            scope.spawn(move || stasis.shim_run_status(&id, &["--rm"], &["sh", "-c", &script]))
        };
        let threads: Vec<_> = ids.iter().enumerate().map(start).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.collect::<Vec<_>>()
    });
    for (number, result) in found.into_iter().enumerate() {
        let (status, message) = result.map_err(|_| anyhow::anyhow!("a start panicked"))??;
        assert_eq!(usize::try_from(status)?, number, "{message}");
    }
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    stasis.nothing_left_of(&ids)
}

/// The daemon is killed while a container runs, and started again.
fn tasks_outlive_containerd(kind: HostKind) -> Result<()> {
    let stasis = StasisHost::of(kind)?;
    stasis.install_shim()?;
    let containerd = stasis.containerd()?;
    let client = Containerd::connect(&stasis.host)?;
    let id = "outlives";
    let script = "echo up; while read line; do echo heard $line; done; exit 12";
    stasis.create_container(id, &[], &["sh", "-c", script])?;
    let stdin = Input::new(&stasis.host, "/run/streams/outlives-in")?;
    let stdout = Output::new(&stasis.host, "/run/streams/outlives-out")?;
    let stderr = Output::new(&stasis.host, "/run/streams/outlives-error")?;
    let streams = Streams::new([&stdin.path, &stdout.path, &stderr.path]);
    let pid = client.create(id, &streams, None)?;
    client.start(id, INIT)?;
    stasis.start_container(&client, "missed", &[], &["/bin/pause"])?;
    stdout.expect("up")?;
    let missed = client.state("missed", INIT)?.pid;
    assert_eq!(stasis.shims()?.len(), 2);

    containerd.kill()?;
    stdin.write("one\n")?;
    stdout.expect("heard one")?;
    // This one ends while no daemon runs to notice it.
    kill_in_host(&stasis, missed)?;

    let _containerd = stasis.host.containerd()?;
    let client = Containerd::connect(&stasis.host)?;
    let mut events = client.events()?;
    let state = client.state(id, INIT)?;
    assert_eq!((state.status(), state.pid), (State::Running, pid));
    // containerd removes a task that it finds without processes.
    assert_eq!(code(&client.state("missed", INIT)), Code::NotFound);
    wait_until_clear(|| {
        let left = stasis.shims()?;
        Ok((left.len() != 1).then(|| format!("shims {left:?}")))
    })?;
    assert_eq!(client.pids(id)?, [(pid, None)]);
    stdin.write("two\n")?;
    stdout.expect("heard two")?;
    let command = process(&["sh", "-c", "exit 8"], false);
    client.exec(id, "e1", &Streams::default(), command)?;
    client.start(id, "e1")?;
    events.until(id, "exit e1 8")?;
    assert_eq!(client.delete_exec(id, "e1")?.status, 8);

    client.close_stdin(id, INIT)?;
    assert_eq!(client.wait(id, INIT)?.status, 12);
    events.until(id, "exit outlives 12")?;
    assert_eq!(client.delete(id)?.status, 12);
    assert_eq!(stdout.text()?, "up\nheard one\nheard two\n");
    stasis.ctr_remove(id)?;
    stasis.ctr_remove("missed")?;
    stasis.nothing_left_of(&[id, "missed"])
}

fn kill_in_host(stasis: &StasisHost, pid: u32) -> Result<()> {
    stasis.run(&["kill", "-KILL", &pid.to_string()])?;
    stasis.until_gone(pid)
}

/// systemd starts containerd with a soft limit of 1024, and a shim serves all of a pod.
fn shim_may_open_as_many_files_as_anybody(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let lower = "prlimit --pid $(pidof containerd) --nofile=1024:";
    stasis.run(&["sh", "-c", lower])?;
    let id = "files";
    stasis.start_container(client, id, &[], &["/bin/pause"])?;
    for shim in stasis.shims()? {
        let limits = fs::read_to_string(stasis.path(format!("/proc/{shim}/limits")))?;
        let files = limits.lines().find(|line| line.contains("open files"));
        let files = files.context("a limit of open files")?;
        let limits: Vec<_> = files.split_whitespace().skip(3).take(2).collect();
        assert_eq!(limits[0], limits[1], "{files}");
    }
    stasis.ctr_remove_all_of(id)
}
