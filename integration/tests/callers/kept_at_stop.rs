//! Resources of ordinary jobs of podman that a stop keeps: files in `/dev/shm`, file locks, a
//! network of their own. A job with a resource that cannot be kept is not lost for it.

use std::{fs, io};

use anyhow::{Result, ensure};
use stasis_integration::container::saved_at_stop::SETTINGS;
use stasis_integration::host::HostKind;
use stasis_integration::host::image::Image;
use stasis_integration::host::installed::{RUNTIME, StasisHost};
use stasis_integration::on_hosts;

on_hosts!(all_cases: sid_v2, trixie);

/// The prefix of archives, in an image, of file systems that CRIU does not dump.
const CARRIED: &str = "stasis-mounted-";

fn all_cases(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::of(kind)?;
    stasis.podman_load()?;
    stasis.set(&stasis.low_level, SETTINGS)?;
    type Case = fn(&StasisHost) -> Result<()>;
    let cases: [(&str, Case); 9] = [
        ("shared", files_in_shared_memory_come_back),
        ("volume", files_of_a_volume_in_memory_come_back),
        ("disk", another_volume_is_told_of),
        ("locks", locks_are_held_again),
        ("gpu", both_come_back_with_a_gpu),
        ("own", podman_keeps_its_own_files_once),
        ("network", a_network_of_its_own_reaches_itself),
        ("queue", a_queue_is_no_reason_to_be_lost),
        ("semaphore", a_semaphore_with_a_name_is_no_reason_to_be_lost),
    ];
    // Each failure is a loss of its own: all are reported together.
    let mut lost = Vec::new();
    for (name, case) in cases {
        if let Err(error) = case(stasis).and_then(|()| stasis.nothing_to_put_right()) {
            lost.push(format!("{name}: {error:#}"));
            stasis.podman_remove(name)?;
        }
    }
    ensure!(
        lost.is_empty(),
        "{}\n{}",
        lost.join("\n"),
        stasis.account("podman")
    );
    Ok(())
}

/// Runs a job without a GPU that is saved at its stop under its own name.
fn run(stasis: &StasisHost, name: &str, network: &str, command: &[&str]) -> Result<()> {
    run_with(stasis, name, &["--network", network], command)
}

fn run_with(stasis: &StasisHost, name: &str, options: &[&str], command: &[&str]) -> Result<()> {
    let annotations = saved_as(name);
    let mut arguments = vec!["--runtime", RUNTIME, "run", "-d", "--name", name];
    arguments.extend(options);
    arguments.extend(annotations.iter().map(String::as_str));
    arguments.push(Image::DEFAULT_NAME);
    arguments.extend(command);
    stasis.podman(&arguments).map(drop)
}

fn saved_as(name: &str) -> [String; 3] {
    [
        "--annotation=io.stasis.checkpoint=on-stop".to_owned(),
        format!("--annotation=io.stasis.checkpoint.key={name}"),
        format!("--annotation=io.stasis.restore=latest:{name}"),
    ]
}

fn stop(stasis: &StasisHost, name: &str) -> Result<()> {
    stasis.podman(&["stop", "-t", "600", name])?;
    stasis.podman_has_ended(name)?;
    stasis.nobody_is_stopped()
}

/// Stops a job, which saves it, and starts it again.
fn stop_and_start(stasis: &StasisHost, name: &str, kept: usize) -> Result<()> {
    stop(stasis, name)?;
    stasis.was_saved_at_stop(&format!("/images/{name}"), kept)?;
    stasis.podman(&["start", name]).map(drop)
}

/// In the same container, and in another one with the same job. With a damaged archive the job
/// starts cold with a note, and finds no file there.
fn files_in_shared_memory_come_back(stasis: &StasisHost) -> Result<()> {
    let job = ["/bin/kept", "10005", "shared"];
    run(stasis, "shared", "host", &job)?;
    answers(stasis, "1 ok")?;
    stop_and_start(stasis, "shared", 1)?;
    answers(stasis, "2 ok")?;
    stop(stasis, "shared")?;
    stasis.podman(&["rm", "shared"])?;
    run(stasis, "shared", "host", &job)?;
    answers(stasis, "3 ok")?;
    stop(stasis, "shared")?;
    let cut_off = format!("truncate --size 4096 /images/shared/*/{CARRIED}*");
    stasis.run(&["bash", "-c", &cut_off])?;
    stasis.podman(&["start", "shared"])?;
    answers(stasis, "1 ok")?;
    started_cold(stasis, CARRIED)?;
    stasis.podman_remove("shared")
}

fn answers(stasis: &StasisHost, expected: &str) -> Result<()> {
    let answer = stasis.ask_until_up(10005)?;
    ensure!(answer == expected, "{answer}, and not {expected}");
    Ok(())
}

fn started_cold(stasis: &StasisHost, why: &str) -> Result<()> {
    let notes = stasis.operation("create")?["notes"].to_string();
    let says_so = notes.contains("started cold") && notes.contains(why);
    ensure!(says_so, "{why:?} is missing in {notes}");
    Ok(())
}

/// podman unmounts the volume when no container uses it any more.
fn files_of_a_volume_in_memory_come_back(stasis: &StasisHost) -> Result<()> {
    let in_memory = ["--opt=type=tmpfs", "--opt=device=tmpfs"];
    stasis.podman(&[&["volume", "create"], &in_memory[..], &["memory"]].concat())?;
    let options = ["--network=host", "--volume=memory:/data"];
    run_with(
        stasis,
        "volume",
        &options,
        &["/bin/kept", "10005", "volume", "shared"],
    )?;
    answers(stasis, "1 ok")?;
    for (answer, kept) in [("2 ok", 1), ("3 ok", 2)] {
        stop_and_start(stasis, "volume", kept)?;
        answers(stasis, answer)?;
    }
    stasis.podman_remove("volume")?;
    stasis.podman(&["volume", "rm", "memory"]).map(drop)
}

/// The job's volume stays; the next container gets another one.
fn another_volume_is_told_of(stasis: &StasisHost) -> Result<()> {
    let job = ["/bin/kept", "10005", "volume"];
    for (volume, answer) in [("one", "1 ok"), ("one", "2 ok"), ("other", "3 volume")] {
        let volume = format!("--volume={volume}:/data");
        run_with(stasis, "disk", &["--network=host", &volume], &job)?;
        answers(stasis, answer)?;
        let notes = stasis.operation("create")?["notes"].to_string();
        let is_told = notes.contains("/data had files when the image was made");
        ensure!(is_told == (answer == "3 volume"), "{answer}: {notes}");
        stop(stasis, "disk")?;
        stasis.podman(&["rm", "disk"])?;
    }
    stasis.podman(&["volume", "rm", "one", "other"]).map(drop)
}

/// The locked file belongs to the container, and another container lacks it: that one starts cold,
/// and finds no file of the image in its `/dev/shm`.
fn locks_are_held_again(stasis: &StasisHost) -> Result<()> {
    let job = ["/bin/kept", "10005", "locks", "shared"];
    run(stasis, "locks", "host", &job)?;
    answers(stasis, "1 ok")?;
    for (answer, kept) in [("2 ok", 1), ("3 ok", 2)] {
        stop_and_start(stasis, "locks", kept)?;
        answers(stasis, answer)?;
    }
    stop(stasis, "locks")?;
    stasis.podman(&["rm", "locks"])?;
    run(stasis, "locks", "host", &job)?;
    answers(stasis, "1 ok")?;
    started_cold(stasis, "lock-")?;
    stasis.podman_remove("locks")
}

fn both_come_back_with_a_gpu(stasis: &StasisHost) -> Result<()> {
    let script = "/bin/counter 10004 & exec /bin/kept 10005 shared locks";
    let saved = saved_as("gpu");
    let options = saved.each_ref().map(String::as_str);
    stasis.podman_run("gpu", &options, &["/bin/sh", "-c", script])?;
    for (counted, kept) in [("101", "1 ok"), ("102", "2 ok")] {
        assert_eq!(stasis.ask_until_up(10004)?, counted);
        answers(stasis, kept)?;
        if kept == "1 ok" {
            stop_and_start(stasis, "gpu", 1)?;
        }
    }
    stasis.podman_remove("gpu")
}

/// podman's own checkpoint keeps the files in podman's archive, and does not ask for locks.
fn podman_keeps_its_own_files_once(stasis: &StasisHost) -> Result<()> {
    run(
        stasis,
        "own",
        "host",
        &["/bin/kept", "10005", "locks", "shared"],
    )?;
    answers(stasis, "1 ok")?;
    stasis.podman_container(&["checkpoint", "--keep"], "own")?;
    let directory = stasis.podman(&["inspect", "--format", "{{.State.CheckpointPath}}", "own"])?;
    let image = stasis.path(&directory);
    let names: io::Result<Vec<_>> = fs::read_dir(image)?.map(|it| Ok(it?.file_name())).collect();
    let names = names?;
    assert!(names.iter().any(|name| name == "inventory.img"));
    assert!(
        !names
            .iter()
            .any(|name| name.to_string_lossy().starts_with(CARRIED))
    );
    stasis.podman_container(&["restore"], "own")?;
    answers(stasis, "2 ok")?;
    stasis.podman_remove("own")
}

fn a_network_of_its_own_reaches_itself(stasis: &StasisHost) -> Result<()> {
    run(
        stasis,
        "network",
        "none",
        &["/bin/kept", "10005", "loopback"],
    )?;
    let ask = || {
        let pid = stasis.podman(&["inspect", "--format", "{{.State.Pid}}", "network"])?;
        stasis.ask_inside(&pid, 10005)
    };
    let first = ask()?;
    stop_and_start(stasis, "network", 1)?;
    let both = [first, ask()?];
    ensure!(both == ["1 ok", "2 ok"], "{both:?}");
    stasis.podman_remove("network")
}

/// CRIU dumps no message queue: the job gets its signal, as without the annotation.
fn a_queue_is_no_reason_to_be_lost(stasis: &StasisHost) -> Result<()> {
    gets_its_signal(stasis, "queue", "message-queue")
}

/// glibc maps it by a name that it has removed, and CRIU has no order to recreate names.
fn a_semaphore_with_a_name_is_no_reason_to_be_lost(stasis: &StasisHost) -> Result<()> {
    gets_its_signal(stasis, "semaphore", "deleted-file")
}

fn gets_its_signal(stasis: &StasisHost, what: &str, why: &str) -> Result<()> {
    run(stasis, what, "host", &["/bin/kept", "10005", what])?;
    answers(stasis, "1 ok")?;
    stop(stasis, what)?;
    let notes = stasis.operation("stop")?["notes"].to_string();
    let says_so = notes.contains("SIGTERM was delivered") && notes.contains(why);
    ensure!(says_so, "{why:?} is missing in {notes}");
    let images = stasis.run_for_text(&["ls", &format!("/images/{what}")])?;
    ensure!(images.is_empty(), "{images}");
    stasis.podman_remove(what)
}
