//! podman's archives by way of `stasis push` and `pull`: the container is removed with its archive,
//! and podman imports the pulled one, with the files that the container had written and removed.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{PROGRAM, StasisHost};
use stasis_integration::{needs, on_hosts};

const ARCHIVE: &str = "/images/job.tar";
const PULLED: &str = "/images/pulled.tar";
const REFERENCE: &str = "oci:/images/layout:job";
/// The command removes a file of its image, and writes another.
const COMMAND: &str = "echo kept > /kept && rm /bin/pause && exec /bin/counter 10008";
const PORT: u16 = 10008;

on_hosts!(podman_imports_what_was_pulled: crun_on_trixie_v2, sid_v2);

fn podman_imports_what_was_pulled(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::of(kind)?;
    stasis.podman_load()?;
    stasis.podman_run("job", &[], &["/bin/sh", "-c", COMMAND])?;
    ensure!(stasis.ask_until_up(PORT)? == "101", "it counts otherwise");
    stasis.podman_container(&["checkpoint", "--export", ARCHIVE], "job")?;
    stasis.podman_remove("job")?;
    let pushed = moved(stasis, &["push", REFERENCE, ARCHIVE])?;
    stasis.run(&["rm", ARCHIVE])?;
    the_manifest_says_whose_it_is(stasis)?;

    let pulled = moved(stasis, &["pull", REFERENCE, PULLED])?;
    ensure!(pulled["digest"] == pushed["digest"], "{pulled}");
    let hidden = stasis.run_for_text(&["find", "/images", "-name", ".*.stasis-*"])?;
    ensure!(hidden.is_empty(), "{hidden} is left");
    stasis.podman(&["container", "restore", "--import", PULLED])?;
    ensure!(
        stasis.ask(PORT)?.as_deref() == Some("102"),
        "it counts otherwise"
    );
    let inside = "cat /kept; ls /bin/pause 2>/dev/null || echo removed";
    let found = stasis.podman(&["exec", "job", "/bin/sh", "-c", inside])?;
    ensure!(found == "kept\nremoved", "{found:?}");
    stasis.podman_remove("job")
}

/// Other programs can read the manifest as well.
fn the_manifest_says_whose_it_is(stasis: &StasisHost) -> Result<()> {
    let manifest = stasis.run_for_text(&["skopeo", "inspect", "--raw", REFERENCE])?;
    let manifest: Value = serde_json::from_str(&manifest).context(manifest)?;
    for (name, said) in [("container.name", "job"), ("engine.name", "Podman")] {
        let found = &manifest["annotations"][format!("org.criu.checkpoint.{name}")];
        ensure!(found == said, "{manifest}");
    }
    Ok(())
}

fn moved(stasis: &StasisHost, arguments: &[&str]) -> Result<Value> {
    let command = [&[PROGRAM], arguments, &["--json"]].concat();
    Ok(serde_json::from_str(&stasis.run_for_text(&command)?)?)
}
