//! The package `stasis-criu`: checkpoints and restores where the system has no CRIU, or one that is
//! too old, and nothing of it where the system's is new enough.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{PROGRAM, StasisHost};
use stasis_integration::{needs, on_hosts};

use crate::packages::assembled;

const PORT: u16 = 10000;
const SYSTEMS: &str = "/usr/sbin/criu";
const AWAY: &str = "/root/criu";
const OURS: &str = "/usr/lib/stasis/criu/criu";
const LINK: &str = "/usr/local/sbin/criu";
/// What Debian 12 has.
const OLD: &str = "#!/bin/sh\necho Version: 3.17.1\n";

on_hosts!(used_where_the_system_has_none: trixie, sid_v2, crun_on_sid_v2);

fn used_where_the_system_has_none(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    install(stasis)?;
    ensure!(
        !doctor(stasis)?.contains(OURS),
        "the system's is new enough"
    );
    let job = Bundle::make(stasis, "job", &["/bin/memcheck", "24", "10000"])?;
    if kind.low_level == "crun" {
        job.suit_crun()?;
    }
    job.comes_up(PORT, "ok 0")?;

    stasis.run(&["mv", SYSTEMS, AWAY])?;
    goes_on(stasis, &job, 1)?;
    let found = doctor(stasis)?;
    for said in [
        "\"criu\"",
        "\"evidence\":\"4.",
        "\"criu-path\"",
        &format!("ln -s {OURS} {LINK}"),
    ] {
        ensure!(found.contains(said), "no {said}: {found}");
    }
    ensure!(!found.contains("criu-missing"), "{found}");

    stasis.script(SYSTEMS, OLD)?;
    goes_on(stasis, &job, 2)?;
    ensure!(!doctor(stasis)?.contains("criu-version"));
    job.delete()?;
    by_podman(stasis)?;

    stasis.run(&["dpkg", "-r", "stasis-criu"])?;
    let found = doctor(stasis)?;
    ensure!(found.contains("criu-version"), "{found}");
    Ok(())
}

/// Installs the package, made of the host's own CRIU, or of the one that `STASIS_CRIU` names as
/// criu.sh has built it.
fn install(stasis: &StasisHost) -> Result<()> {
    let made = tempfile::tempdir()?;
    let built = match std::env::var_os("STASIS_CRIU") {
        Some(built) => PathBuf::from(built),
        None => {
            fs::copy(stasis.path(SYSTEMS), made.path().join("criu"))?;
            fs::write(made.path().join("version"), "4.2.1\n")?;
            fs::write(made.path().join("copyright"), "of a test\n")?;
            fs::create_dir(made.path().join("sources"))?;
            made.path().to_owned()
        }
    };
    let out = assembled(Some(&built))?;
    let sums = Command::new("sha256sum")
        .args(["--check", "--strict", "--quiet", "SHA256SUMS"])
        .current_dir(out.path())
        .status()?;
    ensure!(sums.success(), "SHA256SUMS does not fit");
    let packages = fs::read_dir(out.path())?.map(|entry| Ok(entry?.path()));
    let packages = packages.collect::<Result<Vec<_>>>()?;
    let is_it = |path: &&PathBuf| name(path).starts_with("stasis-criu_");
    let package = packages.iter().find(is_it).context("no package")?;
    let inside = "/root/stasis-criu.deb";
    stasis.host.install(package, inside)?;
    stasis.run(&["dpkg", "-i", inside])?;
    let sources = |path: &PathBuf| name(path).ends_with("-sources.tar");
    ensure!(packages.iter().any(sources), "{packages:?}");
    Ok(())
}

fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Checkpoints and restores the job, which has asked this often.
fn goes_on(stasis: &StasisHost, job: &Bundle<'_>, asked: u32) -> Result<()> {
    job.checkpoint("image", &[])?;
    let manifest = job.manifest("image")?;
    let criu = manifest["made_on"]["criu"].as_str();
    ensure!(
        criu.is_some_and(|criu| criu.starts_with("4.")),
        "{manifest}"
    );
    job.restore("image")?;
    assert_eq!(stasis.ask_until_up(PORT)?, format!("ok {asked}"));
    Ok(())
}

fn doctor(stasis: &StasisHost) -> Result<String> {
    let output = stasis
        .command(PROGRAM)
        .args(["doctor", "--json"])
        .output()?;
    let report: Value = serde_json::from_slice(&output.stdout)?;
    Ok(report["findings"].to_string())
}

/// podman looks for CRIU itself: called by a person it has none before the link that `stasis setup
/// podman` names, called by `stasis` it has. The settings are written without containerd's shim.
fn by_podman(stasis: &StasisHost) -> Result<()> {
    stasis.run(&["rm", "-f", "/usr/local/bin/containerd-shim-stasis-v2"])?;
    let said = stasis.run_for_text(&[PROGRAM, "setup", "podman"])?;
    let link = format!("ln -s {OURS} {LINK}");
    ensure!(said.ends_with(&format!("; now run `{link}`")), "{said}");
    stasis.podman_load()?;
    stasis.podman_run("job", &[], &["/bin/counter", "10000"])?;
    assert_eq!(stasis.ask_until_up(PORT)?, "101");
    let refused = stasis.fails(&["podman", "container", "checkpoint", "job"])?;
    ensure!(refused.to_lowercase().contains("criu"), "{refused}");
    for verb in ["checkpoint", "restore"] {
        stasis.run(&[PROGRAM, verb, "job"])?;
    }
    assert_eq!(stasis.ask_until_up(PORT)?, "102");
    stasis.run(&["sh", "-ec", &link])?;
    for verb in ["checkpoint", "restore"] {
        stasis.podman_container(&[verb], "job")?;
    }
    assert_eq!(stasis.ask_until_up(PORT)?, "103");
    stasis.podman_remove("job")?;
    stasis.run(&["rm", LINK]).map(drop)
}
