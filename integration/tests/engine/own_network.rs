//! Containers whose network runc has made: it reaches itself again before any of their processes
//! runs. CRIU restores a network that crun has made.

use anyhow::{Context, Result};
use serde_json::json;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::image::Image;
use stasis_integration::host::installed::{RUNTIME, StasisHost};
use stasis_integration::on_hosts;

on_hosts!(it_reaches_itself: sid_v2, trixie);

fn it_reaches_itself(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::with_containerd(kind)?;
    stasis.set(&stasis.low_level, "restore.at_create = \"/images\"\n")?;
    let own = &Bundle::make(stasis, "own", &["/bin/kept", "10005", "loopback"])?;
    own.change(|spec| {
        spec["linux"]["devices"] = json!([]);
        if let Some(namespaces) = spec["linux"]["namespaces"].as_array_mut() {
            namespaces.push(json!({ "type": "network" }));
        }
    })?;
    let ask = || stasis.ask_inside(&own.pid()?.to_string(), 10005);
    own.run()?;
    assert_eq!(ask()?, "1 ok");
    own.checkpoint("good", &[])?;
    own.delete()?;
    own.restore("good")?;
    assert_eq!(ask()?, "2 ok");
    own.delete()?;
    of_containerd(stasis)?;
    own.begin_with("own-good")?;
    own.create()?;
    assert_eq!(own.warnings()?, "");
    own.start()?;
    assert_eq!(ask()?, "2 ok");
    own.delete()?;
    stasis.nothing_to_put_right()
}

/// containerd asks for file locks at a checkpoint, and cannot at a restore.
fn of_containerd(stasis: &StasisHost) -> Result<()> {
    let run = [
        "ctr",
        "run",
        "-d",
        "--cpu-shares",
        "0",
        "--runc-binary",
        RUNTIME,
    ];
    let job = [
        Image::DEFAULT_NAME,
        "ctr",
        "/bin/kept",
        "10005",
        "loopback",
        "locks",
    ];
    stasis.run(&[&run[..], &job].concat())?;
    let ask = || {
        let tasks = stasis.run_for_text(&["ctr", "t", "ls", "-q"])?;
        assert_eq!(tasks, "ctr");
        let pids = stasis.run_for_text(&["ctr", "t", "ps", "ctr"])?;
        let pid = pids
            .lines()
            .nth(1)
            .and_then(|line| line.split_whitespace().next());
        stasis.ask_inside(pid.context("no process")?, 10005)
    };
    assert_eq!(ask()?, "1 ok");
    stasis.ctr_checkpoint("ctr", "localhost/own:1")?;
    stasis.ctr_remove("ctr")?;
    stasis.ctr_restore("ctr", "localhost/own:1")?;
    assert_eq!(ask()?, "2 ok");
    stasis.ctr_remove("ctr")
}
