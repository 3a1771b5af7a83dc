//! The shim's tasks: they start, end with their status, and are refused what containerd's own shim refuses.

use anyhow::Result;
use stasis_integration::containerd::{Code, Containerd, INIT, State, Streams, code, process};
use stasis_integration::host::{Cgroups, Suite};
use stasis_integration::lab::Lab;
use stasis_integration::shim::in_host;

const CHECKS: [fn(&Lab, &Containerd) -> Result<()>; 7] = [
    exit_status_is_passed_on,
    signal_becomes_a_status,
    missing_program_is_named,
    task_goes_through_its_states,
    what_does_not_exist_is_not_found,
    execs_end_with_their_status,
    exec_needs_a_running_task,
];

#[test]
fn trixie() -> Result<()> {
    in_host(Suite::Trixie, Cgroups::oldest()?, &CHECKS)
}

#[test]
fn sid() -> Result<()> {
    in_host(Suite::Sid, Cgroups::V2, &CHECKS)
}

fn exit_status_is_passed_on(lab: &Lab, _: &Containerd) -> Result<()> {
    assert_eq!(
        lab.shim_run("said", &["--rm"], &["echo", "hello"])?,
        "hello"
    );
    for status in [0, 7, 255] {
        let command = format!("exit {status}");
        let (found, _) = lab.shim_run_status("status", &["--rm"], &["sh", "-c", &command])?;
        assert_eq!(found, status);
    }
    lab.nothing_left_of(&["said", "status"])
}

fn signal_becomes_a_status(lab: &Lab, client: &Containerd) -> Result<()> {
    let pid = lab.start_container(client, "signal", &[], &["/bin/pause"])?;
    // The kernel spares the first process of a pid namespace the signals that it has no handler for.
    for (signal, status) in [(15, 143), (10, 138), (9, 137)] {
        let waiting = process(&["tail", "-f", "/dev/null"], false);
        client.exec("signal", "e1", &Streams::default(), waiting)?;
        client.start("signal", "e1")?;
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
    assert!(!lab.lives(pid));
    lab.ctr_remove("signal")
}

fn missing_program_is_named(lab: &Lab, client: &Containerd) -> Result<()> {
    let (status, said) = lab.shim_run_status("missing", &["--rm"], &["/bin/no-such-program"])?;
    assert_ne!(status, 0);
    assert!(said.contains("no-such-program"), "{said}");

    lab.create_container("missing", &[], &["/bin/no-such-program"])?;
    let refused = client.create("missing", &Streams::default(), None);
    println!("create of a missing program: {refused:?}");
    assert!(
        format!("{refused:?}").contains("no-such-program"),
        "{refused:?}"
    );
    lab.ctr_remove("missing")?;
    lab.nothing_left_of(&["missing"])
}

fn task_goes_through_its_states(lab: &Lab, client: &Containerd) -> Result<()> {
    lab.create_container("states", &[], &["/bin/pause"])?;
    let pid = client.create("states", &Streams::default(), None)?;
    let state = client.state("states", INIT)?;
    assert_eq!((state.status(), state.pid), (State::Created, pid));
    let again = client.create("states", &Streams::default(), None);
    println!("create twice: {again:?}");
    assert_eq!(code(&again), Code::AlreadyExists);

    assert_eq!(client.start("states", INIT)?, pid);
    assert_eq!(client.state("states", INIT)?.status(), State::Running);
    let again = client.start("states", INIT);
    println!("start twice: {again:?}");
    let running = client.delete("states");
    println!("delete running: {running:?}");
    assert_eq!(code(&running), Code::FailedPrecondition);

    client.kill("states", INIT, 15)?;
    assert_eq!(client.wait("states", INIT)?.status, 0);
    let state = client.state("states", INIT)?;
    assert_eq!((state.status(), state.exit_status), (State::Stopped, 0));
    assert!(state.exited_at.is_some_and(|time| time.seconds > 0));
    let ended = client.kill("states", INIT, 9);
    println!("kill ended: {ended:?}");
    assert_eq!(code(&ended), Code::NotFound);
    println!("start ended {:?}", client.start("states", INIT));
    println!("pause ended {:?}", client.pause("states"));
    println!("pids ended {:?}", client.pids("states"));
    println!("metrics ended {:?}", client.metrics("states"));
    assert_eq!(client.delete("states")?.pid, pid);
    lab.ctr_remove("states")
}

fn what_does_not_exist_is_not_found(lab: &Lab, client: &Containerd) -> Result<()> {
    println!("{:?}", client.state("nowhere", INIT));
    println!("{:?}", client.delete("nowhere"));
    lab.start_container(client, "somewhere", &[], &["/bin/pause"])?;
    println!("{:?}", client.state("somewhere", "e1"));
    println!("{:?}", client.kill("somewhere", "e1", 9));
    println!("{:?}", client.start("somewhere", "e1"));
    println!("{:?}", client.delete_exec("somewhere", "e1"));
    println!("{:?}", client.wait("somewhere", "e1"));
    println!("resize {:?}", client.resize_pty("somewhere", "e1", (1, 1)));
    println!("resize {:?}", client.resize_pty("somewhere", INIT, (1, 1)));
    println!("close {:?}", client.close_stdin("somewhere", "e1"));
    println!("close {:?}", client.close_stdin("somewhere", INIT));
    println!("pause {:?}", client.pause("somewhere"));
    println!("pause again {:?}", client.pause("somewhere"));
    println!(
        "exec paused {:?}",
        client.exec(
            "somewhere",
            "e1",
            &Streams::default(),
            process(&["true"], false)
        )
    );
    println!("exec paused {:?}", client.start("somewhere", "e1"));
    println!("delete paused {:?}", client.delete("somewhere"));
    println!("resume {:?}", client.resume("somewhere"));
    println!("resume again {:?}", client.resume("somewhere"));
    println!("signal 0 {:?}", client.kill("somewhere", INIT, 0));
    println!("signal 99 {:?}", client.kill("somewhere", INIT, 99));
    lab.ctr_remove("somewhere")
}

fn execs_end_with_their_status(lab: &Lab, client: &Containerd) -> Result<()> {
    let streams = Streams::default();
    let init = lab.start_container(client, "execs", &[], &["/bin/pause"])?;
    client.exec(
        "execs",
        "e1",
        &streams,
        process(&["sh", "-c", "exit 3"], false),
    )?;
    println!("state of unstarted {:?}", client.state("execs", "e1"));
    println!("kill of unstarted {:?}", client.kill("execs", "e1", 9));
    println!(
        "exec twice {:?}",
        client.exec(
            "execs",
            "e1",
            &streams,
            process(&["sh", "-c", "exit 3"], false)
        )
    );
    let pid = client.start("execs", "e1")?;
    assert_ne!(pid, init);
    println!("start twice {:?}", client.start("execs", "e1"));
    let ended = client.wait("execs", "e1")?;
    assert_eq!((ended.status, ended.timed), (3, true));
    println!("kill ended {:?}", client.kill("execs", "e1", 9));
    println!("state ended {:?}", client.state("execs", "e1"));
    let deleted = client.delete_exec("execs", "e1")?;
    assert_eq!((deleted.pid, deleted.status, deleted.timed), (pid, 3, true));
    println!("state deleted {:?}", client.state("execs", "e1"));
    client.exec("execs", "e2", &streams, process(&["/bin/pause"], false))?;
    client.start("execs", "e2")?;
    println!("delete running {:?}", client.delete_exec("execs", "e2"));
    client.kill("execs", "e2", 9)?;
    println!("wait {:?}", client.wait("execs", "e2"));
    println!("delete {:?}", client.delete_exec("execs", "e2"));
    client.exec(
        "execs",
        "e3",
        &streams,
        process(&["/bin/no-such-program"], false),
    )?;
    println!("missing {:?}", client.start("execs", "e3"));
    println!("state missing {:?}", client.state("execs", "e3"));
    println!("delete missing {:?}", client.delete_exec("execs", "e3"));
    client.exec("execs", "e4", &streams, process(&["/bin/pause"], false))?;
    println!("delete unstarted {:?}", client.delete_exec("execs", "e4"));
    lab.ctr_remove("execs")
}

fn exec_needs_a_running_task(lab: &Lab, client: &Containerd) -> Result<()> {
    let streams = Streams::default();
    lab.create_container("gone", &[], &["/bin/pause"])?;
    client.create("gone", &streams, None)?;
    println!(
        "exec created {:?}",
        client.exec("gone", "e0", &streams, process(&["true"], false))
    );
    println!("exec created start {:?}", client.start("gone", "e0"));
    client.start("gone", INIT)?;
    client.exec("gone", "before", &streams, process(&["true"], false))?;
    client.kill("gone", INIT, 9)?;
    client.wait("gone", INIT)?;
    println!(
        "exec after {:?}",
        client.exec("gone", "after", &streams, process(&["true"], false))
    );
    println!("start after {:?}", client.start("gone", "after"));
    println!("start before {:?}", client.start("gone", "before"));
    lab.ctr_remove("gone")?;
    lab.nothing_left_of(&["gone", "execs"])
}
