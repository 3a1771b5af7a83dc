//! Checks that run on a node and need a client of containerd's API: `on-node limits|systemd`.
//! containerd runs there, with systemd's cgroup driver and our shim.

mod events;
mod limits;
mod systemd;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use stasis_integration::client::containerd::{Any, Containerd, RuntimeOptions, to_any};

const SOCKET: &str = "/run/containerd/containerd.sock";
/// An emulated processor is slow.
const PATIENCE: Duration = Duration::from_secs(240);

fn main() -> Result<()> {
    let client = Containerd::connect_to(Path::new(SOCKET))?;
    match std::env::args().nth(1).as_deref() {
        Some("limits") => limits::are_those_of_the_cgroup(&client)?,
        Some("oom") => events::want_of_memory_is_told_before_the_end(&client)?,
        Some("systemd") => systemd::has_a_terminal(&client)?,
        other => bail!("there is no check {other:?}"),
    }
    Ok(())
}

/// Runs a program, which has to succeed.
fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).output()?;
    ensure!(
        output.status.success(),
        "{program} {arguments:?}: {output:?}"
    );
    Ok(())
}

/// Returns the options to create the task of a container that [`create`] made.
fn systemd_driver() -> Result<Option<Any>> {
    let options = RuntimeOptions {
        systemd_cgroup: true,
        ..RuntimeOptions::default()
    };
    Ok(Some(to_any(&options)?))
}

/// Makes a container that is to be in a scope of systemd's.
fn create(client: &Containerd, id: &str, options: &[&str], rest: &[&str]) -> Result<()> {
    let create = ["containers", "create", "--snapshotter", "native"];
    run("ctr", &[&create, options, rest].concat())?;
    Ok(client.put_into_cgroup(id, &format!("system.slice:stasis:{id}"))?)
}

/// Waits until a condition holds.
fn until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_so()? {
        ensure!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
