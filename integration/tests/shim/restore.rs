//! Restores through the shim: their sources, their reports, and their leftovers after a failure.

use anyhow::{Context, Result};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::requirement::{Requirement, leave_out};
use stasis_integration::client::containerd::{
    Any, CheckpointOptions, Code, Containerd, INIT, RuntimeOptions, State, Streams, briefs, code,
    process, to_any,
};
use stasis_integration::container::gpu_task::{in_host, into, refused, soon};
use stasis_integration::host::Cgroups;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

on_hosts!(in_host [
    restored_task_is_like_any_other,
    restored_task_is_watched_for_want_of_memory,
    image_of_a_paused_task_is_restored_running,
    resume_without_room_lets_the_task_wait,
    missing_image_is_named,
    failed_restore_can_be_tried_again,
    kill_during_the_criu_restore,
    kill_during_the_gpu_restore_ends_the_task,
]: trixie, sid_v2);

const COUNTER: [&str; 2] = ["/bin/counter", "10000"];
const SIGKILL: u32 = 9;

/// Returns options of a task that is restored from a directory.
fn from(image: &str) -> Result<Option<Any>> {
    let options = RuntimeOptions {
        criu_image_path: image.to_owned(),
        ..RuntimeOptions::default()
    };
    Ok(Some(to_any(&options)?))
}

/// Leaves a container without a task, and a checkpoint of its task that had counted to 101.
fn leave_image(stasis: &StasisHost, client: &Containerd, id: &str) -> Result<String> {
    stasis.start_counter(client, id, &[])?;
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

/// The task's GPU state is in host memory, and another process has taken the GPU meanwhile.
fn resume_without_room_lets_the_task_wait(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    stasis.start_counter(client, "waits", &[])?;
    client.pause("waits")?;
    client.checkpoint("waits", &into("/images/waits"))?;
    stasis.inject("memory 1")?;
    client.resume("waits")?;
    assert_eq!(client.state("waits", INIT)?.status(), State::Running);
    stasis.inject("")?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    client.kill("waits", INIT, SIGKILL)?;
    client.wait("waits", INIT)?;
    client.delete("waits")?;
    Ok(())
}

fn restored_task_is_like_any_other(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    stasis.ctr_run("back", &[], &COUNTER)?;
    assert_eq!(stasis.ask_until_up(10000)?, "101");
    // A V2 host of a machine that has version 1 as well has no metrics.
    let statistics = code(&client.metrics("back"));
    stasis.ctr_checkpoint("back", "back:1")?;
    stasis.ctr_remove("back")?;
    let mut events = client.events()?;
    stasis.ctr_restore("back", "back:1")?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    let state = client.state("back", INIT)?;
    assert_eq!(state.status(), State::Running);
    let waiting = client.beside(|client| client.wait("back", INIT))?;
    assert_eq!(code(&client.metrics("back")), statistics);
    assert_eq!(client.pids("back")?, [(state.pid, None)]);
    let streams = Streams::default();
    let four = process(&["sh", "-c", "exit 4"], false);
    assert_eq!(client.run_exec("back", "e1", &streams, four)?, 4);
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
    stasis.ctr_remove("back")
}

fn restored_task_is_watched_for_want_of_memory(
    stasis: &StasisHost,
    client: &Containerd,
) -> Result<()> {
    let v1 = stasis.cgroup(Cgroups::Hybrid, "memory", "");
    let v2 = stasis.cgroup(Cgroups::V2, "memory", "").join("memory.max");
    if !v1.exists() && !v2.exists() {
        let lacks = match stasis.cgroups {
            Cgroups::Hybrid => Requirement::MemoryControllerV1,
            Cgroups::V2 => Requirement::MemoryControllerV2,
        };
        return leave_out("restored_task_is_watched_for_want_of_memory", lacks);
    }
    stasis.create_gpu_container("tight", &["--memory-limit", "100000000"], &COUNTER)?;
    stasis.start_task(client, "tight", None)?;
    assert_eq!(stasis.ask_until_up(10000)?, "101");
    client.checkpoint("tight", &into("/images/tight"))?;
    client.kill("tight", INIT, SIGKILL)?;
    client.wait("tight", INIT)?;
    client.delete("tight")?;
    let mut events = client.events()?;
    stasis.start_task(client, "tight", from("/images/tight")?)?;
    let greedy = process(&["tail", "/dev/zero"], false);
    client.exec("tight", "greedy", &Streams::default(), greedy)?;
    client.start("tight", "greedy")?;
    events.until("tight", "oom")?;
    assert_eq!(client.wait("tight", "greedy")?.status, 137);
    stasis.ctr_remove("tight")
}

/// The image is given as an option, and not by containerd's descriptor.
fn image_of_a_paused_task_is_restored_running(
    stasis: &StasisHost,
    client: &Containerd,
) -> Result<()> {
    stasis.start_counter(client, "frozen", &[])?;
    client.pause("frozen")?;
    client.checkpoint("frozen", &into("/images/frozen"))?;
    client.kill_init("frozen")?;
    client.delete("frozen")?;
    let created = client.create("frozen", &Streams::default(), from("/images/frozen")?)?;
    let state = client.state("frozen", INIT)?;
    assert_eq!((created, state.pid, state.status()), (0, 0, State::Created));
    let pid = client.start("frozen", INIT)?;
    let state = client.state("frozen", INIT)?;
    assert_eq!((state.pid, state.status()), (pid, State::Running));
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    stasis.ctr_remove("frozen")
}

fn missing_image_is_named(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let image = leave_image(stasis, client, "missing")?;
    let answer = client.create("missing", &Streams::default(), from("/images/nowhere")?);
    let message = answer.err().context("nothing was restored")?.to_string();
    assert!(message.contains("/images/nowhere"), "{message}");
    assert_eq!(code(&client.state("missing", INIT)), Code::NotFound);
    stasis.start_task(client, "missing", from(&image)?)?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    stasis.ctr_remove("missing")
}

fn failed_restore_can_be_tried_again(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let image = leave_image(stasis, client, "again")?;
    client.create("again", &Streams::default(), from(&image)?)?;
    let waiting = client.beside(|client| client.wait("again", INIT))?;
    stasis.inject("restore again error:801")?;
    for _ in 0..2 {
        let answer = client.start("again", INIT);
        let message = answer.err().context("a fault was ordered")?.to_string();
        assert_contains(&message, &["CUDA_ERROR_NOT_SUPPORTED (801)"]);
        let state = client.state("again", INIT)?;
        assert_eq!((state.status(), state.pid), (State::Created, 0));
        assert_eq!(stasis.gpu_processes()?, 0);
        assert!(!stasis.has_record("again"));
    }
    stasis.inject("")?;
    client.start("again", INIT)?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    assert!(waiting.goes_on(), "{:?}", waiting.outcome());
    client.kill("again", INIT, SIGKILL)?;
    assert_eq!(waiting.outcome()??.status, 137);
    client.delete("again")?;
    stasis.ctr_remove_all_of("again")
}

/// CRIU is not cut off, and the engine ends the processes that CRIU brought back. A low-level
/// runtime in place of the engine has no such step: the task starts, and then gets the signal.
fn kill_during_the_criu_restore(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let image = leave_image(stasis, client, "early")?;
    client.create("early", &Streams::default(), from(&image)?)?;
    stasis.hold_criu("post-restore")?;
    let start = client.beside(|client| client.start("early", INIT))?;
    stasis.until_criu_is_held()?;
    refused("delete", "that is being restored", || {
        client.delete("early")
    })?;
    soon("kill", || client.kill("early", INIT, SIGKILL))??;
    assert!(start.goes_on());
    stasis.let_criu_go()?;
    let message = start.outcome()?.err().context("it started")?.to_string();
    assert_contains(&message, &["a signal asked for it to end"]);
    let state = client.state("early", INIT)?;
    assert_eq!((state.status(), state.pid), (State::Created, 0));
    assert_eq!(stasis.gpu_processes()?, 0);
    assert!(!stasis.has_record("early"));
    assert!(stasis.is_silent(10000)?);
    client.delete("early")?;
    stasis.start_task(client, "early", from(&image)?)?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    stasis.ctr_remove("early")?;

    stasis.start_gpu_task(client, "plain", &[], &["/bin/pause"])?;
    client.checkpoint("plain", &into("/images/plain"))?;
    client.kill("plain", INIT, SIGKILL)?;
    client.wait("plain", INIT)?;
    client.delete("plain")?;
    client.create("plain", &Streams::default(), from("/images/plain")?)?;
    stasis.hold_criu("post-restore")?;
    let start = client.beside(|client| client.start("plain", INIT))?;
    stasis.until_criu_is_held()?;
    soon("kill", || client.kill("plain", INIT, SIGKILL))??;
    stasis.let_criu_go()?;
    let pid = start.outcome()??;
    assert_eq!(client.wait("plain", INIT)?.status, 137);
    assert_eq!(client.delete("plain")?.pid, pid);
    stasis.ctr_remove("plain")?;
    stasis.nothing_left_of(&["early", "plain"])
}

/// The engine no longer checks for a request to end: the task has started when it dies.
fn kill_during_the_gpu_restore_ends_the_task(
    stasis: &StasisHost,
    client: &Containerd,
) -> Result<()> {
    let image = leave_image(stasis, client, "late")?;
    let mut events = client.events()?;
    client.create("late", &Streams::default(), from(&image)?)?;
    stasis.hold_driver("restore late", "back")?;
    let start = client.beside(|client| client.start("late", INIT))?;
    stasis.until_phase("late", "gpu restore")?;
    let state = soon("state", || client.state("late", INIT))??;
    assert_eq!(state.status(), State::Created);
    soon("kill", || client.kill("late", INIT, SIGKILL))??;
    assert!(start.goes_on());
    stasis.let_driver_go("back")?;
    let pid = start.outcome()??;
    assert_eq!(client.wait("late", INIT)?.status, 137);
    assert_eq!(stasis.gpu_processes()?, 0);
    assert_eq!(client.delete("late")?.pid, pid);
    assert!(!stasis.has_record("late"));
    let story = events.until("late", "delete 137")?;
    let expected = ["create", "start", "exit late 137", "delete 137"];
    assert_eq!(briefs(&story), expected);
    stasis.inject("")?;
    stasis.start_task(client, "late", from(&image)?)?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    stasis.ctr_remove_all_of("late")
}
