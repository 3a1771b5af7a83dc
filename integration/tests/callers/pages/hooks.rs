//! The examples of docs/hooks.md as written, as annotations of podman's containers: scripts stand
//! in for curl and the job's own program, a shell for the loop in Python.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value};
use stasis_integration::host::image::Image;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::host::{HostKind, c_build};
use stasis_integration::{needs, on_hosts};

use super::node::has_a_gpu;
use super::{blocks, page};

/// Annotations are strings: Kubernetes takes no other value.
const READ: &str = "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.argv[1])))";
const NAME: &str = "localhost/hooked:latest";
const ARCHIVE: &str = "/root/hooked.tar";
const SCRIPT: &str = "#!/bin/sh\necho \"$0 $*\" >>/tmp/asked\n";
/// A training whose loop is told by SIGUSR1 to be quiet.
const JOB: &str = "trap 'touch /tmp/quiet' USR1; /bin/counter 10000 & while :; do wait; done";
const PORT: u16 = 10000;

/// The requests of each example to the scripts, in the page's order.
const ASKED: [&str; 3] = [
    "/bin/curl -fsS -X POST http://localhost:8000/sleep?level=1\n\
     /bin/curl -fsS -X POST http://localhost:8000/wake_up",
    "",
    "/opt/job/ctl leave-group\n/opt/job/ctl join-group",
];

on_hosts!(every_example_runs: sid_v2);

fn every_example_runs(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::of(kind)?;
    has_a_gpu(&stasis.host)?;
    has_an_image(stasis)?;
    let examples: [String; 3] = blocks(&page("docs/hooks.md")?, "Examples")?;
    for (example, asked) in examples.iter().zip(ASKED) {
        runs(stasis, example, asked).with_context(|| example.clone())?;
    }
    Ok(())
}

fn runs(stasis: &StasisHost, example: &str, asked: &str) -> Result<()> {
    let mut run = ["--runtime", "stasis", "run", "-d", "--name", "job"]
        .map(str::to_owned)
        .to_vec();
    run.extend(["--network=host", "--device=nvidia.com/gpu=all"].map(str::to_owned));
    for (name, value) in annotations(example)? {
        let value = value
            .as_str()
            .with_context(|| format!("no string: {value}"))?;
        run.push(format!("--annotation={name}={value}"));
    }
    run.push(NAME.to_owned());
    stasis.podman(&run.iter().map(String::as_str).collect::<Vec<_>>())?;
    ensure!(stasis.ask_until_up(PORT)? == "101");
    stasis.podman_container(&["checkpoint", "--leave-running"], "job")?;
    ensure!(stasis.ask_until_up(PORT)? == "102");
    let log = stasis.operation("checkpoint")?;
    ensure!(log.get("error").is_none(), "{log}");
    for hook in ["before-checkpoint hook", "after-restore hook"] {
        ensure!(log["phases"].to_string().contains(hook), "{log}");
    }
    let look = "cat /tmp/asked; [ ! -e /tmp/quiet ]";
    let found = stasis.podman(&["exec", "job", "/bin/sh", "-c", look])?;
    ensure!(found == asked, "{found}");
    stasis.podman_remove("job")
}

fn annotations(example: &str) -> Result<Map<String, Value>> {
    let output = Command::new("python3")
        .args(["-c", READ, example])
        .output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{errors}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Its `sleep`, other than the test image's, must not be dumped: the hooks end before.
fn has_an_image(stasis: &StasisHost) -> Result<()> {
    let script = tempfile::NamedTempFile::new()?;
    fs::write(script.path(), SCRIPT)?;
    let empty = tempfile::NamedTempFile::new()?;
    let image = Image::new(NAME)?.program(&c_build::build()?.join("bin/counter"))?;
    let image = image.file("/bin/curl", script.path(), 0o755)?;
    let image = image.file("/opt/job/ctl", script.path(), 0o755)?;
    let image = image.file("/bin/sleep", "/bin/busybox".as_ref(), 0o755)?;
    let image = image.file("/tmp/asked", empty.path(), 0o644)?;
    let image = image.command(&["/bin/sh", "-c", JOB]);
    image.write(&stasis.path(ARCHIVE))?;
    stasis.podman(&["load", "-q", "-i", ARCHIVE]).map(drop)
}
