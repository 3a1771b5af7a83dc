//! `stasis checkpoint --group`: containers of several engines together.

use anyhow::{Result, ensure};
use serde_json::json;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::host::installed::{PROGRAM, StasisHost};

use super::object;
use crate::terminal::Terminal;

const PORTS: [u16; 2] = [10020, 10021];

/// Each engine sees its container go on, and then that it has ended.
pub(super) fn engines_see_what_has_ended(stasis: &StasisHost) -> Result<()> {
    stasis.podman_run("of-podman", &[], &["/bin/counter", "10020"])?;
    stasis.ctr_run("of-ctr", &[], &["/bin/counter", "10021"])?;
    for port in PORTS {
        ensure!(stasis.ask_until_up(port)? == "101");
    }
    checkpoint(stasis, "/images/group-1", &["-R"])?;
    for port in PORTS {
        ensure!(stasis.ask_until_up(port)? == "102");
    }
    ensure!(stasis.podman_status("of-podman")? == "running");

    progress_is_shown(stasis)?;

    checkpoint(stasis, "/images/group-2", &[])?;
    stasis.podman_has_ended("of-podman")?;
    wait_until_clear(|| {
        let tasks = stasis.run_for_text(&["ctr", "tasks", "ls"])?;
        let is_stopped = |line: &str| line.starts_with("of-ctr ") && line.contains("STOPPED");
        Ok((!tasks.lines().any(is_stopped)).then_some(tasks))
    })?;
    for name in ["of-podman", "of-ctr"] {
        let image = format!("/images/group-2/{name}");
        stasis.run(&[PROGRAM, "verify", "--here", &image])?;
    }
    // Nothing prevents its next start.
    stasis.podman(&["start", "of-podman"])?;
    ensure!(stasis.ask_until_up(PORTS[0])? == "101");
    stasis.podman(&["rm", "--force", "--time", "0", "of-podman"])?;
    stasis.run(&["ctr", "tasks", "rm", "of-ctr"])?;
    stasis.run(&["ctr", "containers", "rm", "of-ctr"])?;
    Ok(())
}

/// The line names the container for which the others wait.
fn progress_is_shown(stasis: &StasisHost) -> Result<()> {
    stasis.hold_driver("checkpoint of-podman", "progress")?;
    let into = ["--into", "/images/group-shown", "-R"];
    let arguments = [&["checkpoint", "--group", "of-podman", "of-ctr"][..], &into].concat();
    let terminal = Terminal::start(stasis, 120, &arguments)?;
    terminal.until_shown("2 containers: gpu checkpoint of of-podman")?;
    stasis.let_driver_go("progress")?;
    let (code, shown) = terminal.end()?;
    ensure!(code == Some(0), "{shown}");
    assert_contains(&shown, &["2 containers: checkpointed together in "]);
    stasis.inject("")
}

fn checkpoint(stasis: &StasisHost, into: &str, options: &[&str]) -> Result<()> {
    let group = [
        "checkpoint",
        "--group",
        "of-podman",
        "of-ctr",
        "--into",
        into,
    ];
    let (code, answer) = object(stasis, &[&group, options].concat())?;
    ensure!(code == Some(0), "{answer:#}");
    ensure!(
        answer["result"] == "done" && answer["complete"] == true,
        "{answer:#}"
    );
    let engines: Vec<_> = answer["containers"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|container| container["engine"].clone())
        .collect();
    ensure!(
        engines.len() == 2
            && engines.contains(&json!("podman"))
            && engines.contains(&json!("containerd")),
        "{answer:#}"
    );
    Ok(())
}
