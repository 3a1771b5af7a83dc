//! Callers that have gone in the middle: their operations are undone or finished, and the shim does
//! not stay behind.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::Result;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::client::containerd::{
    CheckpointOptions, Code, Containerd, INIT, RuntimeOptions, State, Streams, code, to_any,
};
use stasis_integration::container::gpu_task::{in_host, into};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

on_hosts!(in_host [
    paused_task_is_resumed_for_its_caller,
    deadline_may_pass_after_the_checkpoint,
    refused_resume_is_repeated,
    restore_ends_with_its_task,
    shim_says_what_is_under_way,
]: trixie, sid_v2);

const COUNTER: [&str; 2] = ["/bin/counter", "10000"];
mod without_containerd {
    stasis_integration::on_hosts!(super::task_is_resumed_after_containerd: trixie, sid_v2);
}

/// The log of containerd and its shims.
const LOG: &str = "/run/containerd.log";

fn until_logged(stasis: &StasisHost, parts: &[String]) -> Result<()> {
    wait_until_clear(|| {
        let log = fs::read_to_string(stasis.path(LOG))?;
        let missing = parts.iter().find(|part| !log.contains(part.as_str()));
        Ok(missing.map(|part| format!("no {part:?} in containerd's log")))
    })
}

/// containerd's client pauses, checkpoints and resumes, the last with a context that may have
/// expired by then. A task that is left paused in another way is left so on purpose.
fn paused_task_is_resumed_for_its_caller(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    stasis.set("runc", "deadlines.resume_s = 2\n")?;
    let mut events = client.events()?;
    let tasks = [
        ("abandoned", "10000"),
        ("kept", "10001"),
        ("only-paused", "10002"),
    ];
    for (id, port) in tasks {
        stasis.start_gpu_task(client, id, &[], &["/bin/counter", port])?;
        assert_eq!(stasis.ask_until_up(port.parse()?)?, "101");
    }
    // `ctr` has no deadline.
    stasis.run(&["ctr", "task", "pause", "kept"])?;
    client.checkpoint("kept", &into("/images/kept"))?;
    // The caller is gone, with its connection, once it has paused the task.
    let caller = "ctr t pause only-paused; kill -KILL $$";
    stasis.fails(&["sh", "-c", caller])?;

    let id = "abandoned";
    stasis.hold_gpu_checkpoint(id)?;
    client.pause(id)?;
    let hasty = client.beside(move |client| {
        let patience = Duration::from_secs(3);
        client.checkpoint_within(patience, id, &into("/images/abandoned"))
    })?;
    assert_ne!(code(&hasty.outcome()?), Code::Ok);
    stasis.let_gpu_checkpoint_go()?;
    events.until(id, "resumed")?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    // The pauses of these came earlier, and their time would be over by now.
    for (id, port) in &tasks[1..] {
        assert_eq!(client.state(id, INIT)?.status(), State::Paused);
        assert_eq!(events.count(id, "resumed"), 0);
        client.resume(id)?;
        assert_eq!(stasis.ask(port.parse()?)?.as_deref(), Some("102"));
    }
    stasis.set("runc", "")?;
    tasks.iter().try_for_each(|(id, _)| stasis.ctr_remove(id))
}

/// containerd writes the archive in the same call, and the shim is not asked again.
fn deadline_may_pass_after_the_checkpoint(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    stasis.set("runc", "deadlines.resume_s = 2\n")?;
    let mut events = client.events()?;
    for (id, port) in [("meant", "10000"), ("archived", "10001")] {
        stasis.start_gpu_task(client, id, &[], &["/bin/counter", port])?;
        assert_eq!(stasis.ask_until_up(port.parse()?)?, "101");
    }
    stasis.run(&["ctr", "task", "pause", "meant"])?;
    let ends = Instant::now() + Duration::from_secs(12);
    let left = || ends.saturating_duration_since(Instant::now());
    client.checkpoint_within(left(), "meant", &into("/images/meant"))?;
    client.pause_within(left(), "archived")?;
    client.checkpoint_within(left(), "archived", &into("/images/archived"))?;
    assert_eq!(client.state("archived", INIT)?.status(), State::Paused);
    events.until("archived", "resumed")?;
    assert_eq!(left(), Duration::ZERO);
    assert_eq!(stasis.ask(10001)?.as_deref(), Some("102"));
    assert_eq!(client.state("meant", INIT)?.status(), State::Paused);
    client.resume("meant")?;
    stasis.set("runc", "")?;
    stasis.ctr_remove("meant")?;
    stasis.ctr_remove("archived")
}

/// containerd's client resumes once, and ignores the error.
fn refused_resume_is_repeated(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "refused";
    stasis.set("runc", "deadlines.resume_s = 2\n")?;
    let mut events = client.events()?;
    stasis.start_counter(client, id, &[])?;
    client.pause(id)?;
    client.checkpoint(id, &into("/images/refused"))?;
    // A checkpoint on a busy machine would take longer to ask.
    stasis.set("runc", "deadlines.resume_s = 2\ndeadlines.nvml_s = 1\n")?;
    stasis.inject("nvml-hangs")?;
    assert_ne!(code(&client.resume(id)), Code::Ok);
    until_logged(stasis, &[format!("{id} stays paused")])?;
    assert_eq!(client.state(id, INIT)?.status(), State::Paused);
    stasis.inject("")?;
    events.until(id, "resumed")?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    stasis.set("runc", "")?;
    stasis.ctr_remove(id)
}

/// containerd deletes a task whose restore has failed for it, and asks the shim to end, once each.
fn restore_ends_with_its_task(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "unwanted";
    stasis.start_counter(client, id, &[])?;
    let options = CheckpointOptions {
        exit: true,
        ..into("/images/unwanted")
    };
    client.checkpoint(id, &options)?;
    client.wait(id, INIT)?;
    client.delete(id)?;

    let from = RuntimeOptions {
        criu_image_path: "/images/unwanted".to_owned(),
        ..RuntimeOptions::default()
    };
    client.create(id, &Streams::default(), Some(to_any(&from)?))?;
    stasis.hold_driver(&format!("restore {id}"), "back")?;
    let hasty =
        client.beside(move |client| client.start_within(Duration::from_secs(3), id, INIT))?;
    stasis.until_phase(id, "gpu restore")?;
    assert_ne!(code(&hasty.outcome()?), Code::Ok);
    // The shim learns of the deadline by itself, and deletes no task that may still start.
    let deleting = client.beside(move |client| {
        wait_until_clear(|| Ok(client.delete(id).err().map(|status| status.to_string())))
    })?;
    until_logged(stasis, &[format!("{id} is deleted while it is restored")])?;
    stasis.let_driver_go("back")?;
    deleting.outcome()??;
    assert_eq!(stasis.gpu_processes()?, 0);
    stasis.inject("")?;
    stasis.until_no_shim_runs()?;
    stasis.ctr_remove_all_of(id)
}

/// containerd's own shim logs its stacks at this signal, so operators send it to a shim that hangs.
fn shim_says_what_is_under_way(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "asked";
    let pid = stasis.start_gpu_task(client, id, &[], &["/bin/pause"])?;
    for shim in stasis.shims()? {
        stasis.run(&["kill", "-USR1", &shim.to_string()])?;
    }
    let lines = [
        format!("{id}: pid {pid}, Running"),
        format!("child {pid}, for "),
        format!(" s: the init process of {id}"),
    ];
    until_logged(stasis, &lines)?;
    assert!(stasis.lives(pid));
    stasis.ctr_remove_all_of(id)
}

/// containerd is killed when a checkpoint has been made, while its client would write the archive.
/// A caller that only pauses does so on purpose.
fn task_is_resumed_after_containerd(kind: HostKind) -> Result<()> {
    let [kept, orphaned] = ["kept", "orphaned"];
    let stasis = StasisHost::of(kind)?.through_the_shim()?;
    stasis.containerd()?;
    let client = Containerd::connect(&stasis.host)?;
    stasis.set("runc", "deadlines.resume_s = 3\n")?;
    stasis.start_gpu_task(&client, kept, &[], &["/bin/counter", "10001"])?;
    stasis.start_gpu_task(&client, orphaned, &[], &COUNTER)?;
    assert_eq!(stasis.ask_until_up(10001)?, "101");
    assert_eq!(stasis.ask_until_up(10000)?, "101");
    let waiting = client.beside(move |client| client.wait(orphaned, INIT))?;
    client.pause(kept)?;
    client.checkpoint(kept, &into("/images/kept"))?;
    client.resume(kept)?;
    client.pause(kept)?;
    client.pause(orphaned)?;
    client.checkpoint(orphaned, &into("/images/orphaned"))?;
    assert!(waiting.goes_on());
    let containerd = stasis.run_for_text(&["pidof", "containerd"])?;
    stasis.run(&["kill", "-KILL", &containerd])?;
    assert_ne!(code(&waiting.outcome()?), Code::Ok);
    // The time of the first, which was paused earlier, would be over as well.
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));

    stasis.host.containerd()?;
    let client = Containerd::connect(&stasis.host)?;
    assert_eq!(client.state(orphaned, INIT)?.status(), State::Running);
    assert_eq!(client.state(kept, INIT)?.status(), State::Paused);
    client.resume(kept)?;
    assert_eq!(stasis.ask(10001)?.as_deref(), Some("102"));
    stasis.ctr_remove(kept)?;
    stasis.ctr_remove(orphaned)?;
    stasis.nothing_left_of(&[kept, orphaned])
}
