//! A container may have more processes than stasis may open files: only processes that may use CUDA
//! are held by pidfd.

use anyhow::{Result, ensure};
use serde_json::Value;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{PROGRAM, RUNTIME, StasisHost};
use stasis_integration::on_hosts;

on_hosts!(a_container_may_have_more_processes_than_we_may_open_files: trixie_v2);

const PROCESSES: usize = 200;
/// Both limits of setrlimit(2): raising the soft one does not help.
const OPEN_FILES: &str = "--nofile=64:64";

fn a_container_may_have_more_processes_than_we_may_open_files(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::with_containerd(kind)?;
    let script = format!(
        "exec 9<>/dev/gdrdrv; i=0; while [ $i -lt {PROCESSES} ]; do /bin/pause & i=$((i+1)); done; \
         exec /bin/counter 10111"
    );
    let bundle = Bundle::make(stasis, "many", &["/bin/sh", "-c", &script])?;
    bundle.run()?;
    stasis.ask_until_up(10111)?;
    wait_until_clear(|| {
        let found = check(stasis)?["processes"].as_array().map_or(0, Vec::len);
        Ok((found <= PROCESSES).then(|| format!("{found} processes")))
    })?;

    let report = check(stasis)?;
    assert_eq!(report["checkpointable"], false);
    assert_eq!(
        report["refusal"],
        Value::Null,
        "not for want of descriptors"
    );
    let blockers = report["blockers"].as_array();
    let of_all = blockers.is_some_and(|blockers| blockers.len() == PROCESSES + 1);
    ensure!(of_all, "not every process was examined: {report}");

    // The blocker refuses the checkpoint, and not the limit.
    let mut checkpoint = stasis.command("prlimit");
    let image = bundle.image("many");
    checkpoint.args([OPEN_FILES, RUNTIME, "--root", ROOT, "checkpoint"]);
    checkpoint.args(["--image-path", &image, "many"]);
    let output = checkpoint.output()?;
    ensure!(!output.status.success(), "the checkpoint began");
    assert_contains(
        &String::from_utf8_lossy(&output.stderr),
        &["gdrdrv: ", "nothing was changed"],
    );
    bundle.delete()
}

fn check(stasis: &StasisHost) -> Result<Value> {
    let mut check = stasis.command("prlimit");
    let output = check
        .arg(OPEN_FILES)
        .args([PROGRAM, "check", "--json", "--root", ROOT, "many"])
        .output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(errors.is_empty(), "{errors}");
    Ok(serde_json::from_slice(&output.stdout)?)
}
