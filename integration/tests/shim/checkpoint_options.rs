//! A caller's options for a checkpoint reach the low-level runtime, and the messages of a failed
//! runtime or CRIU reach the caller.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::client::containerd::{
    CheckpointOptions, Containerd, INIT, RuntimeOptions, State, Streams, to_any,
};
use stasis_integration::container::gpu_task::{in_host, into};
use stasis_integration::host::installed::{DRIVER, StasisHost};
use stasis_integration::on_hosts;

on_hosts!(in_host [
    low_level_runtime_gets_what_was_asked_for,
    connection_needs_its_option,
    file_lock_needs_no_option,
    fault_of_the_driver_is_told,
]: trixie, sid_v2);

const BUNDLES: &str = "/run/containerd/io.containerd.runtime.v2.task/default";
const COUNTER: [&str; 2] = ["/bin/counter", "10000"];
const SIGKILL: u32 = 9;

/// A low-level runtime that records its arguments.
const RECORDER: &str = "/usr/local/bin/runc-recorder";
const RECORDER_SCRIPT: &str = r#"#!/bin/sh
echo "$@" >>/run/recorded
exec /usr/sbin/runc "$@"
"#;

/// A process with a connection to another one, both in the container.
const CONNECTED: &str = "(tail -f /dev/null | nc -l -p 10001) & \
     (tail -f /dev/null | until nc 127.0.0.1 10001; do :; done) & ";

fn low_level_runtime_gets_what_was_asked_for(
    stasis: &StasisHost,
    client: &Containerd,
) -> Result<()> {
    stasis.script(RECORDER, RECORDER_SCRIPT)?;
    let options = RuntimeOptions {
        binary_name: RECORDER.to_owned(),
        root: "/run/elsewhere".to_owned(),
        no_new_keyring: true,
        ..RuntimeOptions::default()
    };
    stasis.create_gpu_container("said", &[], &COUNTER)?;
    stasis.start_task(client, "said", Some(to_any(&options)?))?;
    assert_eq!(stasis.ask_until_up(10000)?, "101");
    client.pause("said")?;
    client.resume("said")?;
    client.checkpoint("said", &into("/images/first"))?;
    client.checkpoint("said", &everything())?;
    client.wait("said", INIT)?;
    assert!(stasis.path("/run/chosen/stats-dump").exists());
    client.delete("said")?;
    let restored = RuntimeOptions {
        criu_image_path: "/images/first".to_owned(),
        criu_work_path: "/run/chosen".to_owned(),
        no_new_keyring: false,
        ..options
    };
    stasis.start_task(client, "said", Some(to_any(&restored)?))?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    client.kill("said", INIT, SIGKILL)?;
    client.wait("said", INIT)?;
    client.delete("said")?;
    assert_eq!(recorded(stasis)?, expected());
    stasis.ctr_remove("said")
}

fn everything() -> CheckpointOptions {
    CheckpointOptions {
        exit: true,
        open_tcp: true,
        external_unix_sockets: true,
        terminal: true,
        file_locks: true,
        empty_namespaces: vec!["network".to_owned()],
        cgroups_mode: "soft".to_owned(),
        image_path: "/images/second".to_owned(),
        work_path: "/run/chosen".to_owned(),
        ..CheckpointOptions::default()
    }
}

/// Returns the low-level runtime's arguments, without the ones that all verbs share. A question for
/// its abilities is no verb.
fn recorded(stasis: &StasisHost) -> Result<Vec<String>> {
    let text = fs::read_to_string(stasis.path("/run/recorded"))?;
    let lines = text.lines().filter(|line| *line != "features");
    let global =
        format!("--root /run/elsewhere/default --log {BUNDLES}/said/log.json --log-format json ");
    let without = |line: &str| {
        let rest = line.strip_prefix(&global);
        rest.map(unchosen).with_context(|| format!("{line:?}"))
    };
    lines.map(without).collect()
}

/// Masks the name of a work directory that the shim has made, since no caller has chosen it.
fn unchosen(line: &str) -> String {
    let words = line.split(' ').map(|word| {
        let own = word
            .strip_prefix(BUNDLES)
            .map(|rest| rest.split('-').next());
        match own {
            Some(Some("/said/work/criu")) => "OWN",
            _ => word,
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

fn expected() -> Vec<String> {
    let bundle = format!("{BUNDLES}/said");
    [
        &format!("create --bundle {bundle} --pid-file {bundle}/init.pid --no-new-keyring said"),
        "start said",
        "pause said",
        "resume said",
        "checkpoint --image-path /images/first/.stasis-new --work-path OWN --file-locks \
         --leave-running said",
        "checkpoint --image-path /images/second/.stasis-new --work-path /run/chosen \
         --tcp-established --ext-unix-sk --shell-job --file-locks --manage-cgroups-mode soft \
         --empty-ns network said",
        "delete said",
        // When a shim has ended containerd runs its program once more, to delete the leftovers, but
        // not the container of another bundle.
        "state said",
        "delete --force said",
        &format!(
            "restore --image-path /images/first --file-locks --work-path /run/chosen --detach \
             --pid-file {bundle}/init.pid --no-subreaper --bundle {bundle} said"
        ),
        "kill said 9",
        "delete said",
        "state said",
        "delete --force said",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Checkpoints that are refused without an option. Returns the messages.
fn refused_without(client: &Containerd, id: &str, options: &CheckpointOptions) -> Result<String> {
    let without = into(&options.image_path);
    let refused = client.checkpoint(id, &without);
    let refused = refused.err().context("an option is missing")?;
    let message = refused.message().to_owned();
    assert_contains(&message, &["OCI runtime checkpoint failed: "]);
    assert_eq!(client.state(id, INIT)?.status(), State::Running);
    Ok(message)
}

/// Returns the log that a message names.
fn log_in(stasis: &StasisHost, message: &str, directory: &str) -> Result<String> {
    let path = message
        .split([' ', ';', ':', '"'])
        .find(|word| word.starts_with(directory));
    let path = path.with_context(|| format!("nothing below {directory} is named in: {message}"))?;
    fs::read_to_string(stasis.path(path)).with_context(|| format!("reading {path}"))
}

fn until_connected(stasis: &StasisHost) -> Result<()> {
    wait_until_clear(|| {
        // To port 10001, established.
        let found = stasis.run(&["grep", ":2711 01 ", "/proc/net/tcp"]);
        Ok(found.err().map(|_| "no connection".to_owned()))
    })
}

fn connection_needs_its_option(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let options = CheckpointOptions {
        open_tcp: true,
        ..into("/images/connected")
    };
    let counter = format!("{CONNECTED} exec /bin/counter 10000");
    stasis.start_gpu_task(client, "connected", &[], &["/bin/sh", "-c", &counter])?;
    assert_eq!(stasis.ask_until_up(10000)?, "101");
    until_connected(stasis)?;
    let message = refused_without(client, "connected", &options)?;
    assert!(message.contains("tcp-connection: "), "{message}");
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    client.checkpoint("connected", &options)?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("103"));
    stasis.ctr_remove("connected")?;

    let plain = format!("{CONNECTED} exec /bin/pause");
    stasis.start_gpu_task(client, "plain", &[], &["/bin/sh", "-c", &plain])?;
    until_connected(stasis)?;
    let message = refused_without(client, "plain", &options)?;
    assert!(message.contains("tcp-connection: "), "{message}");
    // CRIU is called all the same, and its log is where containerd's shim leaves it.
    stasis.set("runc", "preflight.allow = [\"tcp-connection\"]\n")?;
    let message = refused_without(client, "plain", &options)?;
    assert!(message.contains("criu failed"), "{message}");
    let log = log_in(stasis, &message, &format!("{BUNDLES}/plain/criu-dump.log"))?;
    assert!(log.contains("tcp-established"), "{log}");
    stasis.set("runc", "")?;
    client.checkpoint("plain", &options)?;
    stasis.ctr_remove("plain")
}

fn file_lock_needs_no_option(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    // The image has no flock, and the container sees this directory.
    let flock = format!("{DRIVER}/flock");
    stasis.host.install(Path::new("/usr/bin/flock"), &flock)?;
    let command = [&flock, "/tmp/lock", "/bin/counter", "10000"];
    stasis.start_gpu_task(client, "locked", &[], &command)?;
    assert_eq!(stasis.ask_until_up(10000)?, "101");
    client.checkpoint("locked", &into("/images/locked"))?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    stasis.ctr_remove("locked")
}

fn fault_of_the_driver_is_told(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    stasis.create_gpu_container("faulty", &[], &COUNTER)?;
    client.create("faulty", &Streams::default(), None)?;
    client.start("faulty", INIT)?;
    assert_eq!(stasis.ask_until_up(10000)?, "101");
    stasis.inject("checkpoint faulty error:801")?;
    let message = refused_without(client, "faulty", &into("/images/faulty"))?;
    for part in ["gpu checkpoint of process", "(801)", "runs on as before"] {
        assert!(message.contains(part), "{part:?} is missing in {message}");
    }
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    stasis.inject("")?;
    client.checkpoint("faulty", &into("/images/faulty"))?;
    stasis.ctr_remove("faulty")
}
