//! Two containers that share a network, as in a pod, and talk over a TCP connection.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{PROGRAM, StasisHost};

use super::three::{answer, of};

const POD: &str = "pod";
/// Sends numbered lines to the server, and keeps the ones that come back.
const CLIENT: &str = "mkfifo /in; nc 127.0.0.1 7000 </in >/out & exec 3>/in; i=0; \
    while kill -0 $!; do i=$((i+1)); echo $i >&3; sleep 0.05; done";

pub(super) fn over_tcp(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::with_containerd(kind)?;
    new_pod(stasis)?;
    let server = ["/bin/nc", "-l", "-p", "7000", "-e", "/bin/cat"];
    let pod = [
        run(stasis, "server", &server)?,
        run(stasis, "talker", &["/bin/sh", "-c", CLIENT])?,
    ];
    let mut count = come_back(stasis, 0)?;
    let refused = group(stasis, "/images/refused", &["-R"])?;
    ensure!(
        of(&refused, "server", "error").contains("tcp-connection: "),
        "{refused:#}"
    );
    ensure!(of(&refused, "server", "state") == "unharmed", "{refused:#}");
    stasis.run(&["mkdir", "-p", "/etc/criu"])?;
    stasis.write("/etc/criu/runc.conf", "tcp-established\n")?;
    for cycle in 1..=3 {
        let into = format!("/images/going-on-{cycle}");
        let saved = group(stasis, &into, &["-R"])?;
        ensure!(saved["result"] == "done", "{saved:#}");
        count = come_back(stasis, count).context("going on")?;
    }
    let saved = group(stasis, "/images/ended", &[])?;
    ensure!(saved["result"] == "done", "{saved:#}");
    let restored = restore(stasis, "/images/ended", &pod)?;
    ensure!(restored["result"] == "done", "{restored:#}");
    // Whether the connection survives is a matter of milliseconds: the first one back may be
    // answered by a reset (docs/internals/design.md).
    pod.iter().try_for_each(Bundle::delete)
}

fn new_pod(stasis: &StasisHost) -> Result<()> {
    stasis.run(&["ip", "netns", "add", POD])?;
    stasis.run(&["ip", "-n", POD, "link", "set", "lo", "up"])?;
    Ok(())
}

fn run<'l>(stasis: &'l StasisHost, id: &str, command: &[&str]) -> Result<Bundle<'l>> {
    let bundle = Bundle::make(stasis, id, command)?;
    bundle.change(|spec| {
        let namespaces = spec["linux"]["namespaces"].as_array_mut();
        namespaces.into_iter().for_each(|all| {
            all.push(json!({ "type": "network", "path": format!("/run/netns/{POD}") }));
        });
    })?;
    bundle.run()?;
    Ok(bundle)
}

fn group(stasis: &StasisHost, into: &str, options: &[&str]) -> Result<Value> {
    let mut command = stasis.command(PROGRAM);
    command.args(["checkpoint", "--into", into]).args(options);
    command.args(["--group", "server", "talker", "--root", ROOT, "--json"]);
    answer(&command.output()?)
}

fn restore(stasis: &StasisHost, from: &str, pod: &[Bundle<'_>]) -> Result<Value> {
    let mut command = stasis.command(PROGRAM);
    command.args(["restore", "--group", from, "--root", ROOT, "--json"]);
    for one in pod {
        command.arg(format!("--bundle={}={}", one.id, one.directory()));
    }
    answer(&command.output()?)
}

/// Waits until more than `before` lines have come back, in order and complete. Returns how many.
fn come_back(stasis: &StasisHost, before: usize) -> Result<usize> {
    let file = stasis.path("/run/bundle-talker/rootfs/out");
    let mut count = 0;
    wait_until_clear(|| {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let number: usize = line.parse().context(text.clone())?;
            ensure!(number == at + 1, "line {at} is {line}");
        }
        count = lines.len();
        Ok((count <= before).then(|| format!("{count} lines, as before")))
    })?;
    Ok(count)
}
