//! Hooks by the annotations of each engine's containers: containerd with the shim, podman, Docker.

use anyhow::{Context, Result, ensure};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

/// Options for the engine's command line.
const ANNOTATED: [&str; 4] = [
    "--annotation",
    "io.stasis.hook.before-checkpoint=echo heard",
    "--annotation",
    "io.stasis.hook.after-restore=[\"/bin/echo\", \"is back\"]",
];

on_hosts!(of_every_engine: trixie_hybrid, sid_v2);

fn of_every_engine(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::of(kind)?.through_the_shim()?;
    of_podman(stasis).context("podman")?;
    of_docker(stasis).context("docker")?;
    of_containerd(stasis).context("containerd")
}

/// Checks that a hook of the last operation with this name has written `said`.
fn heard(stasis: &StasisHost, operation: &str, hook: &str, said: &str) -> Result<()> {
    let line = stasis.operation(operation)?;
    ensure!(line.get("error").is_none(), "{line}");
    let (phases, notes) = (line["phases"].to_string(), line["notes"].to_string());
    ensure!(phases.contains(&format!("{hook} hook")), "{line}");
    ensure!(
        notes.contains(&format!("{hook} hook said \\\"{said}\\\"")),
        "{line}"
    );
    Ok(())
}

/// ctr pauses the task for its checkpoint.
fn of_containerd(stasis: &StasisHost) -> Result<()> {
    let _containerd = stasis.containerd()?;
    stasis.ctr_run("hooked", &ANNOTATED, &["/bin/counter", "10000"])?;
    ensure!(stasis.ask_until_up(10000)? == "101");
    stasis.ctr_checkpoint("hooked", "hooked:1")?;
    ensure!(stasis.ask_until_up(10000)? == "102");
    heard(stasis, "checkpoint", "before-checkpoint", "heard")?;
    heard(stasis, "resume", "after-restore", "is back")?;
    stasis.ctr_remove("hooked")?;
    stasis.ctr_restore("hooked", "hooked:1")?;
    heard(stasis, "restore", "after-restore", "is back")?;
    stasis.ctr_remove("hooked")?;
    let invalid = ["--annotation", "io.stasis.hook.after-restore=[x"];
    let refused = stasis.ctr_run("hooked", &invalid, &["/bin/counter", "10000"]);
    let said = format!("{:#}", refused.err().context("it was created")?);
    ensure!(said.contains("nothing was created"), "{said}");
    Ok(())
}

fn of_podman(stasis: &StasisHost) -> Result<()> {
    stasis.podman_load()?;
    stasis.podman_run("hooked", &ANNOTATED, &["/bin/counter", "10000"])?;
    ensure!(stasis.ask_until_up(10000)? == "101");
    stasis.podman_container(&["checkpoint"], "hooked")?;
    heard(stasis, "checkpoint", "before-checkpoint", "heard")?;
    stasis.podman_container(&["restore"], "hooked")?;
    heard(stasis, "restore", "after-restore", "is back")?;
    ensure!(stasis.ask_until_up(10000)? == "102");
    stasis.podman_remove("hooked")
}

fn of_docker(stasis: &StasisHost) -> Result<()> {
    let _docker = stasis.docker()?;
    stasis.docker_run("hooked", &ANNOTATED, &["/bin/counter", "10000"])?;
    ensure!(stasis.ask_until_up(10000)? == "101");
    stasis.docker_checkpoint(&["--leave-running"], "hooked", "one")?;
    ensure!(stasis.ask_until_up(10000)? == "102");
    heard(stasis, "checkpoint", "before-checkpoint", "heard")?;
    stasis.docker_remove("hooked")?;
    // Docker may take the next checkpoint of a container for one that there is
    // (docs/internals/testing.md).
    stasis.docker_run("again", &ANNOTATED, &["/bin/counter", "10000"])?;
    ensure!(stasis.ask_until_up(10000)? == "101");
    stasis.docker_checkpoint(&[], "again", "two")?;
    stasis.docker_wait_for("again", "exited")?;
    stasis.docker_restore("again", "two")?;
    heard(stasis, "restore", "after-restore", "is back")?;
    ensure!(stasis.ask_until_up(10000)? == "102");
    stasis.docker_remove("again")
}
