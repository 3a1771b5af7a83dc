//! Restores through the shim: from where they come, what they tell, and what is left when they fail.

use anyhow::{Context, Result};
use stasis_integration::containerd::{
    Any, CheckpointOptions, Code, Containerd, INIT, RuntimeOptions, State, Streams, briefs, code,
    process,
};
use stasis_integration::gpu_task::{in_host, into, refused, soon};
use stasis_integration::host::{Cgroups, Suite};
use stasis_integration::lab::Lab;

const CHECKS: [fn(&Lab, &Containerd) -> Result<()>; 8] = [
    restored_task_is_like_any_other,
    restored_task_is_watched_for_want_of_memory,
    image_of_a_paused_task_is_restored_running,
    refused_resume_leaves_the_task_paused,
    missing_image_is_named,
    failed_restore_can_be_tried_again,
    kill_during_the_criu_restore,
    kill_during_the_gpu_restore_ends_the_task,
];
const COUNTER: [&str; 2] = ["/bin/counter", "10000"];
const SIGKILL: u32 = 9;

#[test]
fn trixie() -> Result<()> {
    in_host(Suite::Trixie, Cgroups::oldest()?, &CHECKS)
}

#[test]
fn sid() -> Result<()> {
    in_host(Suite::Sid, Cgroups::V2, &CHECKS)
}

/// Options of a task that is restored from a directory.
fn from(image: &str) -> Option<Any> {
    let options = RuntimeOptions {
        criu_image_path: image.to_owned(),
        ..RuntimeOptions::default()
    };
    Some(options.to_any())
}

/// Leaves a container without a task, and the checkpoint of one that had counted to 101.
fn leave_image(lab: &Lab, client: &Containerd, id: &str) -> Result<String> {
    lab.start_gpu_task(client, id, &[], &COUNTER)?;
    assert_eq!(lab.ask_until_up(10000)?, "101");
    let image = format!("/images/{id}");
    let options = CheckpointOptions {
        exit: true,
        ..into(&image)
    };
    client.checkpoint(id, &options)?;
    client.wait(id, INIT)?;
    client.delete(id)?;
    Ok(image)
}

/// Its GPU state is in host memory, and somebody else has taken the GPU meanwhile.
fn refused_resume_leaves_the_task_paused(lab: &Lab, client: &Containerd) -> Result<()> {
    lab.start_gpu_task(client, "waits", &[], &COUNTER)?;
    assert_eq!(lab.ask_until_up(10000)?, "101");
    client.pause("waits")?;
    client.checkpoint("waits", &into("/images/waits"))?;
    lab.order("memory 1")?;
    refused("resume", "has 1 MiB free", || client.resume("waits"))?;
    assert_eq!(client.state("waits", INIT)?.status(), State::Paused);
    lab.order("")?;
    client.resume("waits")?;
    assert_eq!(client.state("waits", INIT)?.status(), State::Running);
    assert_eq!(lab.ask(10000)?.as_deref(), Some("102"));
    client.kill("waits", INIT, SIGKILL)?;
    client.wait("waits", INIT)?;
    client.delete("waits")?;
    Ok(())
}

fn restored_task_is_like_any_other(lab: &Lab, client: &Containerd) -> Result<()> {
    lab.ctr_run("back", &[], &COUNTER)?;
    assert_eq!(lab.ask_until_up(10000)?, "101");
    // There are none in a V2 host of a machine that has version 1 as well.
    let statistics = code(&client.metrics("back"));
    lab.ctr_checkpoint("back", "back:1")?;
    lab.ctr_remove("back")?;
    let mut events = client.events()?;
    lab.ctr_restore("back", "back:1")?;
    assert_eq!(lab.ask(10000)?.as_deref(), Some("102"));
    let state = client.state("back", INIT)?;
    assert_eq!(state.status(), State::Running);
    let waiting = client.beside(|client| client.wait("back", INIT))?;
    assert_eq!(code(&client.metrics("back")), statistics);
    assert_eq!(client.pids("back")?, [(state.pid, None)]);
    let streams = Streams::default();
    let four = process(&["sh", "-c", "exit 4"], false);
    client.exec("back", "e1", &streams, four)?;
    client.start("back", "e1")?;
    assert_eq!(client.wait("back", "e1")?.status, 4);
    client.delete_exec("back", "e1")?;
    client.kill("back", INIT, SIGKILL)?;
    assert_eq!(waiting.outcome()??.status, 137);
    assert_eq!(client.delete("back")?.pid, state.pid);
    let story = events.until("back", "delete 137")?;
    let expected = [
        "create",
        "start",
        "exec-added e1",
        "exec-started e1",
        "exit e1 4",
        "exit back 137",
        "delete 137",
    ];
    assert_eq!(briefs(&story), expected);
    // containerd unpacks the image into a directory of its own.
    assert_eq!(story[0].pid, 0);
    assert!(story[0].checkpoint.starts_with('/'), "{:?}", story[0]);
    assert_eq!((story[1].pid, story[5].pid), (state.pid, state.pid));
    lab.ctr_remove("back")
}

fn restored_task_is_watched_for_want_of_memory(lab: &Lab, client: &Containerd) -> Result<()> {
    let v1 = lab.cgroup(Cgroups::Hybrid, "memory", "");
    let v2 = lab.cgroup(Cgroups::V2, "memory", "").join("memory.max");
    if !v1.exists() && !v2.exists() {
        eprintln!("not run: this host limits no memory");
        return Ok(());
    }
    lab.create_gpu_container("tight", &["--memory-limit", "100000000"], &COUNTER)?;
    lab.start_task(client, "tight", None)?;
    assert_eq!(lab.ask_until_up(10000)?, "101");
    client.checkpoint("tight", &into("/images/tight"))?;
    client.kill("tight", INIT, SIGKILL)?;
    client.wait("tight", INIT)?;
    client.delete("tight")?;
    let mut events = client.events()?;
    lab.start_task(client, "tight", from("/images/tight"))?;
    let greedy = process(&["tail", "/dev/zero"], false);
    client.exec("tight", "greedy", &Streams::default(), greedy)?;
    client.start("tight", "greedy")?;
    events.until("tight", "oom")?;
    assert_eq!(client.wait("tight", "greedy")?.status, 137);
    lab.ctr_remove("tight")
}

/// It is given as an option, and not by containerd's descriptor.
fn image_of_a_paused_task_is_restored_running(lab: &Lab, client: &Containerd) -> Result<()> {
    lab.start_gpu_task(client, "frozen", &[], &COUNTER)?;
    assert_eq!(lab.ask_until_up(10000)?, "101");
    client.pause("frozen")?;
    client.checkpoint("frozen", &into("/images/frozen"))?;
    client.kill("frozen", INIT, SIGKILL)?;
    assert_eq!(client.wait("frozen", INIT)?.status, 137);
    client.delete("frozen")?;
    let created = client.create("frozen", &Streams::default(), from("/images/frozen"))?;
    let state = client.state("frozen", INIT)?;
    assert_eq!((created, state.pid, state.status()), (0, 0, State::Created));
    let pid = client.start("frozen", INIT)?;
    let state = client.state("frozen", INIT)?;
    assert_eq!((state.pid, state.status()), (pid, State::Running));
    assert_eq!(lab.ask(10000)?.as_deref(), Some("102"));
    lab.ctr_remove("frozen")
}

fn missing_image_is_named(lab: &Lab, client: &Containerd) -> Result<()> {
    let image = leave_image(lab, client, "missing")?;
    let answer = client.create("missing", &Streams::default(), from("/images/nowhere"));
    let said = answer.err().context("nothing was restored")?.to_string();
    assert!(said.contains("/images/nowhere"), "{said}");
    assert_eq!(code(&client.state("missing", INIT)), Code::NotFound);
    lab.start_task(client, "missing", from(&image))?;
    assert_eq!(lab.ask(10000)?.as_deref(), Some("102"));
    lab.ctr_remove("missing")
}

fn failed_restore_can_be_tried_again(lab: &Lab, client: &Containerd) -> Result<()> {
    let image = leave_image(lab, client, "again")?;
    client.create("again", &Streams::default(), from(&image))?;
    let waiting = client.beside(|client| client.wait("again", INIT))?;
    lab.order("restore again error:801")?;
    for _ in 0..2 {
        let answer = client.start("again", INIT);
        let said = answer.err().context("a fault was ordered")?.to_string();
        assert!(said.contains("CUDA_ERROR_NOT_SUPPORTED (801)"), "{said}");
        let state = client.state("again", INIT)?;
        assert_eq!((state.status(), state.pid), (State::Created, 0));
        assert_eq!(lab.gpu_processes()?, 0);
        assert!(!lab.has_record("again"));
    }
    lab.order("")?;
    client.start("again", INIT)?;
    assert_eq!(lab.ask(10000)?.as_deref(), Some("102"));
    assert!(waiting.goes_on(), "{:?}", waiting.outcome());
    client.kill("again", INIT, SIGKILL)?;
    assert_eq!(waiting.outcome()??.status, 137);
    client.delete("again")?;
    lab.ctr_remove("again")?;
    lab.nothing_left_of(&["again"])
}

/// CRIU is not cut off, and the engine ends what it brought back. A low-level runtime in the engine's
/// place has no such step: the task starts, and gets the signal then.
fn kill_during_the_criu_restore(lab: &Lab, client: &Containerd) -> Result<()> {
    let image = leave_image(lab, client, "early")?;
    client.create("early", &Streams::default(), from(&image))?;
    lab.hold_criu("post-restore")?;
    let start = client.beside(|client| client.start("early", INIT))?;
    lab.until_criu_is_held()?;
    refused("delete", "that is being restored", || {
        client.delete("early")
    })?;
    soon("kill", || client.kill("early", INIT, SIGKILL))??;
    assert!(start.goes_on());
    lab.let_criu_go()?;
    let said = start.outcome()?.err().context("it started")?.to_string();
    assert!(said.contains("a signal asked for it to end"), "{said}");
    let state = client.state("early", INIT)?;
    assert_eq!((state.status(), state.pid), (State::Created, 0));
    assert_eq!(lab.gpu_processes()?, 0);
    assert!(!lab.has_record("early"));
    assert_eq!(lab.ask(10000)?, None);
    client.delete("early")?;
    lab.start_task(client, "early", from(&image))?;
    assert_eq!(lab.ask(10000)?.as_deref(), Some("102"));
    lab.ctr_remove("early")?;

    lab.start_gpu_task(client, "plain", &[], &["/bin/pause"])?;
    client.checkpoint("plain", &into("/images/plain"))?;
    client.kill("plain", INIT, SIGKILL)?;
    client.wait("plain", INIT)?;
    client.delete("plain")?;
    client.create("plain", &Streams::default(), from("/images/plain"))?;
    lab.hold_criu("post-restore")?;
    let start = client.beside(|client| client.start("plain", INIT))?;
    lab.until_criu_is_held()?;
    soon("kill", || client.kill("plain", INIT, SIGKILL))??;
    lab.let_criu_go()?;
    let pid = start.outcome()??;
    assert_eq!(client.wait("plain", INIT)?.status, 137);
    assert_eq!(client.delete("plain")?.pid, pid);
    lab.ctr_remove("plain")?;
    lab.nothing_left_of(&["early", "plain"])
}

/// The engine does not look for the wish to end any more: the task has started when it dies.
fn kill_during_the_gpu_restore_ends_the_task(lab: &Lab, client: &Containerd) -> Result<()> {
    let image = leave_image(lab, client, "late")?;
    let mut events = client.events()?;
    client.create("late", &Streams::default(), from(&image))?;
    lab.order("restore late slow:4000 1")?;
    let start = client.beside(|client| client.start("late", INIT))?;
    lab.until_phase("late", "gpu restore")?;
    let state = soon("state", || client.state("late", INIT))??;
    assert_eq!(state.status(), State::Created);
    soon("kill", || client.kill("late", INIT, SIGKILL))??;
    assert!(start.goes_on());
    let pid = start.outcome()??;
    assert_eq!(client.wait("late", INIT)?.status, 137);
    assert_eq!(lab.gpu_processes()?, 0);
    assert_eq!(client.delete("late")?.pid, pid);
    assert!(!lab.has_record("late"));
    let story = events.until("late", "delete 137")?;
    let expected = ["create", "start", "exit late 137", "delete 137"];
    assert_eq!(briefs(&story), expected);
    lab.order("")?;
    lab.start_task(client, "late", from(&image))?;
    assert_eq!(lab.ask(10000)?.as_deref(), Some("102"));
    lab.ctr_remove("late")?;
    lab.nothing_left_of(&["late"])
}
