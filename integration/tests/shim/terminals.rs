//! Terminals of the shim's processes.

use anyhow::Result;
use stasis_integration::client::containerd::{Containerd, INIT, Input, Output, Streams, process};
use stasis_integration::client::shim::in_host;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

on_hosts!(in_host [
    terminal_has_the_size_it_is_given,
    terminal_that_was_closed_is_used_again,
    terminal_ends_with_its_process,
    exec_has_a_terminal_of_its_own,
    terminal_is_hung_up_when_its_input_ends,
]: trixie, sid_v2);

fn terminal_has_the_size_it_is_given(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "terminal";
    let script = "tty; read line; stty size; read line; echo got $line";
    stasis.create_container(id, &["-t"], &["sh", "-c", script])?;
    let stdin = Input::new(&stasis.host, "/run/streams/terminal-in")?;
    let stdout = Output::new(&stasis.host, "/run/streams/terminal-out")?;
    let streams = Streams::of_terminal([&stdin.path, &stdout.path]);
    client.create(id, &streams, None)?;
    assert!(client.state(id, INIT)?.terminal);
    client.resize_pty(id, INIT, (91, 37))?;
    client.start(id, INIT)?;
    stdout.expect("/dev/")?;
    stdin.write("go\n")?;
    stdout.expect("37 91")?;
    stdin.write("on\n")?;
    stdout.expect("got on")?;
    assert_eq!(client.wait(id, INIT)?.status, 0);
    client.delete(id)?;
    // The terminal's newlines, and its echo of the input.
    assert!(
        stdout.text()?.contains("go\r\n37 91\r\n"),
        "{:?}",
        stdout.text()?
    );
    stasis.ctr_remove(id)
}

/// systemd opens the console for each line, and so do many init programs.
fn terminal_that_was_closed_is_used_again(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "console";
    // Only the shim could tell the script that it has seen the terminal closed: it sleeps.
    let script = "echo first; exec </dev/null >/dev/null 2>&1; sleep 1; \
                  echo second >/dev/console; sleep 1; echo third >/dev/console";
    stasis.create_container(id, &["-t"], &["sh", "-c", script])?;
    let stdout = Output::new(&stasis.host, "/run/streams/console-out")?;
    let streams = Streams::of_terminal(["", &stdout.path]);
    client.create(id, &streams, None)?;
    client.start(id, INIT)?;
    for line in ["first", "second", "third"] {
        stdout.expect(line)?;
    }
    assert_eq!(client.wait(id, INIT)?.status, 0);
    assert_eq!(stdout.text()?, "first\r\nsecond\r\nthird\r\n");
    client.delete(id)?;
    stasis.ctr_remove(id)
}

/// A background job of a shell keeps the terminal open, and clients wait for the end of the output
/// before they delete the process.
fn terminal_ends_with_its_process(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "job";
    stasis.start_container(client, id, &[], &["/bin/pause"])?;
    let stdout = Output::new(&stasis.host, "/run/streams/job-out")?;
    let streams = Streams::of_terminal(["", &stdout.path]);
    let script = "trap '' HUP; tail -f /dev/null & seq 5000; echo last";
    client.exec(id, "e1", &streams, process(&["sh", "-c", script], true))?;
    client.start(id, "e1")?;
    assert_eq!(client.wait(id, "e1")?.status, 0);
    let text = stdout.text()?;
    assert!(text.ends_with("4999\r\n5000\r\nlast\r\n"), "{text:?}");
    assert_eq!(client.pids(id)?.len(), 2, "the job runs");
    assert_eq!(client.delete_exec(id, "e1")?.status, 0);
    stasis.ctr_remove(id)
}

fn exec_has_a_terminal_of_its_own(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "exec-terminal";
    stasis.start_container(client, id, &[], &["/bin/pause"])?;
    let stdin = Input::new(&stasis.host, "/run/streams/exec-terminal-in")?;
    let stdout = Output::new(&stasis.host, "/run/streams/exec-terminal-out")?;
    let streams = Streams::of_terminal([&stdin.path, &stdout.path]);
    let script = "echo ready; read line; stty size; exit 6";
    client.exec(id, "e1", &streams, process(&["sh", "-c", script], true))?;
    client.start(id, "e1")?;
    stdout.expect("ready")?;
    client.resize_pty(id, "e1", (120, 40))?;
    stdin.write("go\n")?;
    stdout.expect("40 120")?;
    assert_eq!(client.wait(id, "e1")?.status, 6);
    assert_eq!(client.delete_exec(id, "e1")?.status, 6);
    stdout.text()?;
    stasis.ctr_remove(id)?;
    stasis.nothing_left_of(&[id, "console", "job", "terminal"])
}

/// A shell whose user has gone would stay for ever.
fn terminal_is_hung_up_when_its_input_ends(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "lost-client";
    stasis.start_container(client, id, &[], &["/bin/pause"])?;
    let stdin = Input::new(&stasis.host, "/run/streams/lost-client-in")?;
    let stdout = Output::new(&stasis.host, "/run/streams/lost-client-out")?;
    let streams = Streams::of_terminal([&stdin.path, &stdout.path]);
    let script = "trap 'exit 7' HUP; echo ready; while :; do :; done";
    client.exec(id, "e1", &streams, process(&["sh", "-c", script], true))?;
    client.start(id, "e1")?;
    stdout.expect("ready")?;
    drop(stdin);
    client.close_stdin(id, "e1")?;
    assert_eq!(client.wait(id, "e1")?.status, 7);
    client.resize_pty(id, INIT, (80, 24))?;
    assert_eq!(client.delete_exec(id, "e1")?.status, 7);
    stasis.ctr_remove_all_of(id)
}
