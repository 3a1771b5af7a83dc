//! The shim's tasks: they start, end with their status, and are refused the calls that containerd's
//! own shim refuses.

use std::fmt::Debug;
use std::fs;

use anyhow::Result;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::client::containerd::{
    Answer, Code, Containerd, INIT, State, Streams, code, process,
};
use stasis_integration::client::shim::{Shim, in_host};
use stasis_integration::host::image::Image;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

mod damage;
mod hung_files;
mod load;
mod requests;
mod roots;

on_hosts!(in_host [
    exit_status_is_passed_on,
    shim_is_found_by_its_path,
    signal_becomes_a_status,
    missing_program_is_named,
    task_goes_through_its_states,
    ended_task_is_refused_what_needs_a_process,
    paused_task_is_refused_what_needs_a_running_one,
    what_does_not_exist_is_not_found,
    execs_go_through_their_states,
    exec_needs_a_task_that_has_not_ended,
]: trixie, sid_v2);

/// containerd's own shim has no code for a wrong state; a shim that has one is as good.
#[track_caller]
fn is_refused<T: Debug>(answer: &Answer<T>, state: &str) {
    match answer {
        Err(status) => {
            let known = [Code::Unknown, Code::FailedPrecondition];
            assert!(known.contains(&status.code()), "{status:?}");
            assert!(status.message().contains(state), "{status:?}");
        }
        Ok(given) => panic!("{given:?} and not a refusal of something {state}"),
    }
}

fn exit_status_is_passed_on(stasis: &StasisHost, _: &Containerd) -> Result<()> {
    let message = stasis.shim_run("said", &["--rm"], &["echo", "hello"])?;
    assert_eq!(message, "hello");
    for status in [0, 7, 255] {
        let command = format!("exit {status}");
        let (found, _) = stasis.shim_run_status("status", &["--rm"], &["sh", "-c", &command])?;
        assert_eq!(found, status);
    }
    stasis.nothing_left_of(&["said", "status"])
}

/// containerd takes the program's path for a runtime's name.
fn shim_is_found_by_its_path(stasis: &StasisHost, _: &Containerd) -> Result<()> {
    let name = Shim::under_test().program();
    let path = stasis.run_for_text(&["bash", "-c", &format!("command -v {name}")])?;
    let run = [
        "ctr",
        "run",
        "--rm",
        "--cpu-shares",
        "0",
        "--runtime",
        &path,
    ];
    let container = [Image::DEFAULT_NAME, "by-path", "echo", "hello"];
    let stdout = stasis.run_for_text(&[&run[..], &container].concat())?;
    assert_eq!(stdout, "hello");
    stasis.nothing_left_of(&["by-path"])
}

fn signal_becomes_a_status(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let pid = stasis.start_container(client, "signal", &[], &["/bin/pause"])?;
    // The kernel spares the first process of a pid namespace the signals for which it has no
    // handler.
    for (signal, status) in [(15, 143), (10, 138), (9, 137)] {
        let waiting = process(&["tail", "-f", "/dev/null"], false);
        client.exec("signal", "e1", &Streams::default(), waiting)?;
        let pid = client.start("signal", "e1")?;
        // The process is the runtime's at first, which has a handler for some.
        let comm = stasis.path(format!("/proc/{pid}/comm"));
        wait_until_clear(|| {
            let name = fs::read_to_string(&comm)?;
            Ok((name != "tail\n").then_some(name))
        })?;
        client.kill("signal", "e1", signal)?;
        assert_eq!(client.wait("signal", "e1")?.status, status);
        assert_eq!(client.delete_exec("signal", "e1")?.status, status);
    }
    client.kill("signal", INIT, 9)?;
    let ended = client.wait("signal", INIT)?;
    assert_eq!((ended.status, ended.timed), (137, true));
    let deleted = client.delete("signal")?;
    assert_eq!(
        (deleted.pid, deleted.status, deleted.timed),
        (pid, 137, true)
    );
    assert!(!stasis.lives(pid));
    stasis.ctr_remove_all_of("signal")
}

fn missing_program_is_named(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let missing = ["/bin/no-such-program"];
    let (status, message) = stasis.shim_run_status("missing", &["--rm"], &missing)?;
    assert_ne!(status, 0);
    assert!(message.contains(missing[0]), "{message}");

    stasis.create_container("missing", &[], &missing)?;
    let refused = client.create("missing", &Streams::default(), None);
    assert_eq!(code(&refused), Code::Unknown);
    is_refused(&refused, missing[0]);
    assert_eq!(code(&client.state("missing", INIT)), Code::NotFound);
    stasis.ctr_remove_all_of("missing")
}

fn task_goes_through_its_states(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    stasis.create_container("states", &[], &["/bin/pause"])?;
    let pid = client.create("states", &Streams::default(), None)?;
    let state = client.state("states", INIT)?;
    assert_eq!((state.status(), state.pid), (State::Created, pid));
    let twice = client.create("states", &Streams::default(), None);
    assert_eq!(code(&twice), Code::AlreadyExists);

    assert_eq!(client.start("states", INIT)?, pid);
    let state = client.state("states", INIT)?;
    assert_eq!((state.status(), state.pid), (State::Running, pid));
    is_refused(&client.start("states", INIT), "running");
    is_refused(&client.delete("states"), "running");
    is_refused(&client.resume("states"), "running");
    assert_eq!(client.state("states", INIT)?.status(), State::Running);
    // Without a terminal and without input the calls do nothing, and are no fault.
    client.resize_pty("states", INIT, (80, 24))?;
    client.close_stdin("states", INIT)?;
    client.kill("states", INIT, 0)?;

    client.kill_init("states")?;
    let state = client.state("states", INIT)?;
    assert_eq!(
        (state.status(), state.exit_status, state.pid),
        (State::Stopped, 137, pid)
    );
    assert!(state.exited_at.is_some_and(|time| time.seconds > 0));
    assert_eq!(client.delete("states")?.pid, pid);
    assert_eq!(code(&client.state("states", INIT)), Code::NotFound);
    stasis.ctr_remove("states")
}

fn ended_task_is_refused_what_needs_a_process(
    stasis: &StasisHost,
    client: &Containerd,
) -> Result<()> {
    stasis.start_container(client, "ended", &[], &["sh", "-c", "exit 5"])?;
    assert_eq!(client.wait("ended", INIT)?.status, 5);
    assert_eq!(code(&client.kill("ended", INIT, 9)), Code::NotFound);
    is_refused(&client.start("ended", INIT), "stopped");
    is_refused(&client.pause("ended"), "stopped");
    assert_eq!(client.pids("ended")?, []);
    // A late caller gets the status, too.
    assert_eq!(client.wait("ended", INIT)?.status, 5);
    stasis.ctr_remove("ended")
}

fn paused_task_is_refused_what_needs_a_running_one(
    stasis: &StasisHost,
    client: &Containerd,
) -> Result<()> {
    stasis.start_container(client, "paused", &[], &["/bin/pause"])?;
    let added = process(&["/bin/pause"], false);
    client.exec("paused", "e0", &Streams::default(), added)?;
    client.start("paused", "e0")?;
    client.pause("paused")?;
    assert_eq!(client.state("paused", INIT)?.status(), State::Paused);
    is_refused(&client.pause("paused"), "paused");
    let command = process(&["true"], false);
    let exec = client.exec("paused", "e1", &Streams::default(), command);
    is_refused(&exec, "paused");
    is_refused(&client.delete("paused"), "paused");
    assert_eq!(client.state("paused", "e0")?.status(), State::Paused);
    client.resume("paused")?;
    assert_eq!(client.state("paused", "e0")?.status(), State::Running);
    assert_eq!(client.state("paused", INIT)?.status(), State::Running);
    stasis.ctr_remove("paused")
}

fn what_does_not_exist_is_not_found(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    assert_eq!(code(&client.state("nowhere", INIT)), Code::NotFound);
    assert_eq!(code(&client.delete("nowhere")), Code::NotFound);

    stasis.start_container(client, "somewhere", &[], &["/bin/pause"])?;
    let (id, none) = ("somewhere", "e1");
    assert_eq!(code(&client.state(id, none)), Code::NotFound);
    assert_eq!(code(&client.start(id, none)), Code::NotFound);
    assert_eq!(code(&client.kill(id, none, 9)), Code::NotFound);
    assert_eq!(code(&client.wait(id, none)), Code::NotFound);
    assert_eq!(code(&client.delete_exec(id, none)), Code::NotFound);
    assert_eq!(code(&client.resize_pty(id, none, (1, 1))), Code::NotFound);
    assert_eq!(code(&client.close_stdin(id, none)), Code::NotFound);
    assert_eq!(client.state(id, INIT)?.status(), State::Running);
    stasis.ctr_remove(id)
}

fn execs_go_through_their_states(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let (id, streams) = ("execs", Streams::default());
    let init = stasis.start_container(client, id, &[], &["/bin/pause"])?;
    let waiting = || {
        process(
            &["sh", "-c", "trap 'exit 3' TERM; while :; do :; done"],
            false,
        )
    };
    client.exec(id, "e1", &streams, waiting())?;
    let state = client.state(id, "e1")?;
    assert_eq!((state.status(), state.pid), (State::Created, 0));
    assert_eq!(code(&client.kill(id, "e1", 9)), Code::FailedPrecondition);
    // nerdctl does so before there is a terminal.
    client.resize_pty(id, "e1", (80, 24))?;
    let twice = client.exec(id, "e1", &streams, waiting());
    assert_eq!(code(&twice), Code::AlreadyExists);

    let pid = client.start(id, "e1")?;
    assert_ne!(pid, init);
    let state = client.state(id, "e1")?;
    assert_eq!((state.status(), state.pid), (State::Running, pid));
    // containerd's own shim refuses it too, but then leaves its socket behind at its end.
    if Shim::under_test() != Shim::Go {
        is_refused(&client.start(id, "e1"), "running");
    }
    is_refused(&client.delete_exec(id, "e1"), "running");

    client.kill(id, "e1", 9)?;
    let ended = client.wait(id, "e1")?;
    assert_eq!((ended.status, ended.timed), (137, true));
    let state = client.state(id, "e1")?;
    assert_eq!((state.status(), state.exit_status), (State::Stopped, 137));
    assert_eq!(code(&client.kill(id, "e1", 9)), Code::NotFound);
    let deleted = client.delete_exec(id, "e1")?;
    assert_eq!(
        (deleted.pid, deleted.status, deleted.timed),
        (pid, 137, true)
    );
    assert_eq!(code(&client.state(id, "e1")), Code::NotFound);

    let fails = process(&["sh", "-c", "exit 3"], false);
    assert_eq!(client.run_exec(id, "e2", &streams, fails)?, 3);

    let missing = process(&["/bin/no-such-program"], false);
    client.exec(id, "e3", &streams, missing)?;
    is_refused(&client.start(id, "e3"), "/bin/no-such-program");
    assert_eq!(client.state(id, "e3")?.status(), State::Created);
    client.wait(id, "e3")?;
    client.delete_exec(id, "e3")?;
    client.exec(id, "e4", &streams, waiting())?;
    client.delete_exec(id, "e4")?;
    assert_eq!(code(&client.state(id, "e4")), Code::NotFound);
    assert_eq!(client.state(id, INIT)?.status(), State::Running);
    stasis.ctr_remove(id)
}

fn exec_needs_a_task_that_has_not_ended(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let (id, streams) = ("gone", Streams::default());
    let command = || process(&["sh", "-c", "exit 4"], false);
    stasis.create_container(id, &[], &["/bin/pause"])?;
    client.create(id, &streams, None)?;
    client.exec(id, "early", &streams, command())?;
    client.start(id, "early")?;
    assert_eq!(client.wait(id, "early")?.status, 4);
    client.start(id, INIT)?;

    client.exec(id, "before", &streams, command())?;
    client.kill(id, INIT, 9)?;
    client.wait(id, INIT)?;
    is_refused(&client.exec(id, "after", &streams, command()), "stopped");
    assert_eq!(code(&client.state(id, "after")), Code::NotFound);
    let late = client.start(id, "before");
    assert_eq!(code(&late), Code::FailedPrecondition);
    stasis.ctr_remove_all_of(id)
}
