//! The standard streams of the shim's processes: pipes, files and loggers.

use anyhow::Result;
use stasis_integration::client::containerd::{
    Code, Containerd, INIT, Input, Output, State, Streams, code, process,
};
use stasis_integration::client::shim::{Shim, in_host};
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

/// The amount that `dd` writes, in MiB.
const MUCH: usize = 200;
const LOGGER: &str = "/usr/local/bin/logger";
/// A logger has to read on to the end of both streams, also after a SIGTERM. With descriptor 5
/// closed in all processes, the logger is ready.
const LOGGER_SCRIPT: &str = "#!/bin/bash
trap '' TERM
directory=/run/logs/$CONTAINER_NAMESPACE-$CONTAINER_ID
mkdir -p $directory
echo $* >$directory/arguments
cat <&3 5>&- >$directory/stdout &
cat <&4 5>&- >$directory/stderr &
exec 3<&- 4<&- 5>&-
wait
echo ended >$directory/ended
";

on_hosts!(in_host [
    streams_are_separate,
    much_output_arrives_whole,
    output_of_an_exec_ends_with_it,
    closed_input_ends_a_reader,
    output_goes_into_a_file,
    output_goes_to_a_logger,
    logger_of_version_2_says_that_it_is_ready,
    output_goes_to_the_end_of_a_file,
]: trixie, sid_v2);

fn streams_are_separate(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "separate";
    stasis.create_container(id, &[], &["sh", "-c", "echo out; echo error >&2"])?;
    let stdout = Output::new(&stasis.host, "/run/streams/separate-out")?;
    let stderr = Output::new(&stasis.host, "/run/streams/separate-error")?;
    let streams = Streams::new(["", &stdout.path, &stderr.path]);
    client.create(id, &streams, None)?;
    let state = client.state(id, INIT)?;
    assert_eq!(
        (state.stdout, state.stderr),
        (streams.stdout, streams.stderr)
    );
    client.start(id, INIT)?;
    assert_eq!(client.wait(id, INIT)?.status, 0);
    client.delete(id)?;
    assert_eq!(
        (stdout.text()?, stderr.text()?),
        ("out\n".into(), "error\n".into())
    );
    stasis.ctr_remove(id)
}

fn much_output_arrives_whole(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "much";
    let count = format!("count={MUCH}");
    stasis.create_container(id, &[], &["dd", "if=/dev/zero", "bs=1M", &count])?;
    let stdout = Output::new(&stasis.host, "/run/streams/much-out")?;
    let stderr = Output::new(&stasis.host, "/run/streams/much-error")?;
    let streams = Streams::new(["", &stdout.path, &stderr.path]);
    // No output may be lost that is still in the pipes at the end.
    succeeds(client, id, &streams)?;
    assert_eq!(stdout.bytes()?, MUCH << 20);
    assert!(stderr.text()?.contains("200+0 records out"));
    stasis.ctr_remove(id)
}

fn output_of_an_exec_ends_with_it(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "exec-output";
    stasis.start_container(client, id, &[], &["/bin/pause"])?;
    let stdout = Output::new(&stasis.host, "/run/streams/exec-out")?;
    let stderr = Output::new(&stasis.host, "/run/streams/exec-error")?;
    let streams = Streams::new(["", &stdout.path, &stderr.path]);
    let command = process(&["sh", "-c", "echo out; echo error >&2; exit 9"], false);
    assert_eq!(client.run_exec(id, "e1", &streams, command)?, 9);
    assert_eq!(
        (stdout.text()?, stderr.text()?),
        ("out\n".into(), "error\n".into())
    );
    stasis.ctr_remove(id)
}

fn closed_input_ends_a_reader(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "reader";
    stasis.create_container(id, &[], &["cat"])?;
    let stdin = Input::new(&stasis.host, "/run/streams/reader-in")?;
    let stdout = Output::new(&stasis.host, "/run/streams/reader-out")?;
    let stderr = Output::new(&stasis.host, "/run/streams/reader-error")?;
    let streams = Streams::new([&stdin.path, &stdout.path, &stderr.path]);
    client.create(id, &streams, None)?;
    client.start(id, INIT)?;
    stdin.write("first\n")?;
    stdout.expect("first\n")?;
    // One of several clients may go away, which ends nothing.
    stdin.write("second\n")?;
    stdout.expect("second\n")?;
    assert_eq!(client.state(id, INIT)?.status(), State::Running);
    client.close_stdin(id, INIT)?;
    assert_eq!(client.wait(id, INIT)?.status, 0);
    client.delete(id)?;
    assert_eq!(stdout.text()?, "first\nsecond\n");
    stasis.ctr_remove(id)
}

fn output_goes_into_a_file(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "file";
    stasis.create_container(id, &[], &["sh", "-c", "echo out; echo error >&2"])?;
    // The directory is made if it does not exist.
    let log = "file:///run/logs/of/file.log";
    let streams = Streams::new(["", log, log]);
    succeeds(client, id, &streams)?;
    let text = std::fs::read_to_string(stasis.path("/run/logs/of/file.log"))?;
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["error", "out"]);
    stasis.ctr_remove(id)
}

fn output_goes_to_a_logger(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    stasis.script(LOGGER, LOGGER_SCRIPT)?;
    let id = "logged";
    stasis.create_container(id, &[], &["sh", "-c", "echo out; echo error >&2"])?;
    let logger = format!("binary://{LOGGER}?colour=blue");
    let streams = Streams::new(["", &logger, &logger]);
    succeeds(client, id, &streams)?;
    let read = |name: &str| {
        let path = format!("/run/logs/default-logged/{name}");
        std::fs::read_to_string(stasis.path(path))
    };
    assert_eq!(read("arguments")?, "colour blue\n");
    // The task lasts until its log is complete.
    assert_eq!(
        (read("stdout")?, read("stderr")?),
        ("out\n".into(), "error\n".into())
    );
    assert_eq!(read("ended")?, "ended\n");
    stasis.ctr_remove(id)?;

    stasis.create_container(id, &[], &["/bin/pause"])?;
    let streams = Streams::new(["", "binary:///usr/local/bin/no-such-logger", ""]);
    let refused = client.create(id, &streams, None);
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(code(&client.state(id, INIT)), Code::NotFound);
    stasis.ctr_remove(id)?;
    stasis.nothing_left_of(&["logged", "file", "reader", "much", "separate"])
}

/// The logger gets two variables alone, the id of an added process, and ends at SIGTERM.
fn logger_of_version_2_says_that_it_is_ready(
    stasis: &StasisHost,
    client: &Containerd,
) -> Result<()> {
    const SCRIPT: &str = "#!/bin/bash\n\
        [ -z \"$1\" ] || exit 1\n\
        echo ready >&5; exec 5>&-\n\
        trap told=1 TERM\n\
        mapfile -t -n 1 first <&3\n\
        env | grep -v -e ^PWD= -e ^SHLVL= -e ^_= | sort >/run/logs/second\n\
        echo \"$first\" >>/run/logs/second\n\
        until [ \"$told\" ]; do sleep 0.1; done\n\
        echo told >>/run/logs/second\n";
    stasis.script(LOGGER, SCRIPT)?;
    stasis.run(&["mkdir", "-p", "/run/logs"])?;
    let id = "second";
    stasis.start_container(client, id, &[], &["/bin/pause"])?;
    let to = |uri: &str| Streams::new(["", uri, ""]);
    let command = process(&["echo", "said"], false);
    // containerd's own shim has it since 2.2.
    if Shim::under_test() == Shim::Stasis {
        client.exec(id, "e1", &to("binary-v2:///usr/local/bin/logger?"), command)?;
        client.start(id, "e1")?;
        assert_eq!(client.wait(id, "e1")?.status, 0);
        client.delete_exec(id, "e1")?;
        let log = std::fs::read_to_string(stasis.path("/run/logs/second"))?;
        let expected = "CONTAINER_ID=e1\nCONTAINER_NAMESPACE=default\nsaid\ntold\n";
        assert_eq!(log, expected);
        let ended = to("binary-v2:///usr/local/bin/logger?ends=now");
        client.exec(id, "e2", &ended, process(&["true"], false))?;
        let refused = client.start(id, "e2");
        assert!(refused.is_err(), "{refused:?}");
    }
    stasis.ctr_remove_all_of(id)
}

/// The path of an existing file, and the scheme for standard output alone, which takes both.
fn output_goes_to_the_end_of_a_file(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "appended";
    let path = "/run/logs/appended";
    for (number, stdout) in [path.to_owned(), format!("file://{path}")]
        .iter()
        .enumerate()
    {
        stasis.write(path, "earlier\n")?;
        stasis.create_container(id, &[], &["sh", "-c", "echo error >&2; echo out"])?;
        let streams = Streams::new(["", stdout, [path, ""][number]]);
        succeeds(client, id, &streams)?;
        let text = std::fs::read_to_string(stasis.path(path))?;
        let mut lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.remove(0), "earlier");
        lines.sort_unstable();
        assert_eq!(lines, ["error", "out"]);
        stasis.ctr_remove(id)?;
    }
    stasis.nothing_left_of(&[id])
}

/// Runs a container to its end.
fn succeeds(client: &Containerd, id: &str, streams: &Streams) -> Result<()> {
    client.create(id, streams, None)?;
    client.start(id, INIT)?;
    assert_eq!(client.wait(id, INIT)?.status, 0);
    client.delete(id)?;
    Ok(())
}
