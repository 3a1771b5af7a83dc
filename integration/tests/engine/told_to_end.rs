//! SIGTERM comes in the middle of a restore without GPU state: what the low-level runtime makes of
//! it when it is called alone is what it makes of it behind stasis.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{RUNTIME, StasisHost};
use stasis_integration::on_hosts;

/// runc finds it before the other.
const CRIU: &str = "/usr/local/sbin/criu";
/// Tells whoever was asked for the restore: stasis, or runc itself.
const TELLS: &str = r#"#!/bin/sh
above=$(($(ps -o ppid= -p $PPID)))
[ "$(cat /proc/$above/comm)" = stasis-runtime ] || above=$PPID
[ ! -e /run/told ] && [ "$1" = swrk ] && kill -TERM $above && : >/run/told
exec /usr/sbin/criu "$@"
"#;
/// The exit code of the workload at SIGTERM.
const AT_TERM: i32 = 7;

on_hosts!(restores_go_on: sid, trixie_v2);

fn restores_go_on(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::of(kind)?;
    let _containerd = stasis.containerd()?;
    let script = format!("trap 'exit {AT_TERM}' TERM; while :; do /bin/pause & wait $!; done");
    let plain = Bundle::make(stasis, "plain", &["/bin/sh", "-c", &script])?;
    plain.change(|spec| spec["linux"]["devices"] = json!([]))?;
    plain.run()?;
    plain.checkpoint("image", &[])?;
    plain.delete()?;
    stasis.host.write(CRIU, TELLS)?;
    stasis.host.run(&["chmod", "755", CRIU])?;
    let mut plain = plain;
    for program in ["runc", RUNTIME] {
        plain = plain.through(program);
        detached(stasis, &plain).with_context(|| format!("{program}, detached"))?;
        attached(stasis, &plain).with_context(|| format!("{program}, attached"))?;
    }
    stasis.nothing_to_put_right()
}

/// Who is restored is not told: its caller has not seen it.
fn detached(stasis: &StasisHost, plain: &Bundle<'_>) -> Result<()> {
    plain.restore("image")?;
    was_told(stasis)?;
    assert_eq!(plain.status()?, "running");
    plain.delete()
}

/// The signal is for the container, which gets it once it runs.
fn attached(stasis: &StasisHost, plain: &Bundle<'_>) -> Result<()> {
    let (image, bundle) = (plain.image("image"), plain.directory());
    let work = format!("{bundle}/work");
    let from = ["--image-path", &image, "--work-path", &work];
    let mut restore = plain.runtime(&["restore"]);
    restore.args(from).args(["--bundle", &bundle, &plain.id]);
    let status = restore.stderr(Stdio::null()).status()?;
    was_told(stasis)?;
    assert_eq!(status.code(), Some(AT_TERM));
    plain.delete()
}

fn was_told(stasis: &StasisHost) -> Result<()> {
    let told = stasis.host.path("/run/told");
    ensure!(told.exists(), "no signal was sent");
    Ok(std::fs::remove_file(told)?)
}
