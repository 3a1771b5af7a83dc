//! `stasis check --machine` names the holes of the programs that would really run.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{PROGRAM, RUNTIME, StasisHost};
use stasis_integration::on_hosts;

const OLD_RUNC: &str = "/opt/old/runc";
const OLD: &str = "#!/bin/sh\n[ \"$1\" != --version ] || { echo runc version 1.1.0; exit; }\n\
                   exec /usr/sbin/runc \"$@\"\n";

on_hosts!(known_holes_are_named: sid_v2);

fn known_holes_are_named(kind: HostKind) -> Result<()> {
    let stasis = StasisHost::of(kind)?;
    // sid has versions without these holes.
    ensure!(ids(&stasis)?.is_empty(), "{:?}", ids(&stasis)?);

    stasis.host.write(OLD_RUNC, OLD)?;
    stasis.host.run(&["chmod", "755", OLD_RUNC])?;
    stasis.set(OLD_RUNC, "")?;
    let found = ids(&stasis)?;
    ensure!(
        found
            == [
                "runc-CVE-2024-21626",
                "runc-CVE-2025-31133",
                "runc-CVE-2026-41579"
            ],
        "{found:?}"
    );
    // The distribution may have closed them: not an error.
    let text = stasis.host.run_for_text(&[PROGRAM, "check", "--machine"])?;
    assert_contains(
        &text,
        &[
            "runc 1.1.0: /opt/old/runc",
            "warning: runc 1.1.0 (/opt/old/runc) may have CVE-2024-21626: ",
            "install runc 1.1.12 or newer, or a package in which your distribution has closed it",
        ],
    );
    who_could_change_it_matters(&stasis)
}

/// A program that everybody can exchange is not run by root, one of a group's is reported.
fn who_could_change_it_matters(stasis: &StasisHost) -> Result<()> {
    stasis.host.run(&["chmod", "775", "/opt/old"])?;
    let found = ids(stasis)?;
    ensure!(
        found.last().is_some_and(|id| id == "exposed-runc"),
        "{found:?}"
    );
    stasis.host.run(&["chmod", "777", "/opt/old"])?;
    let output = stasis.command(RUNTIME).arg("list").output()?;
    ensure!(!output.status.success(), "it was run");
    let said = String::from_utf8_lossy(&output.stderr);
    let expected = "the low-level runtime /opt/old/runc is not run: all users may change /opt/old";
    assert_contains(&said, &[expected]);
    stasis.host.run(&["chmod", "755", "/opt/old"])?;
    Ok(())
}

fn ids(stasis: &StasisHost) -> Result<Vec<String>> {
    let text = stasis
        .host
        .run_for_text(&[PROGRAM, "check", "--machine", "--json"])?;
    let machine: Value = serde_json::from_str(&text)?;
    let programs = machine["programs"].as_array().context("no programs")?;
    let names: Vec<_> = programs.iter().map(|program| &program["program"]).collect();
    ensure!(names == ["runc", "containerd"], "{text}");
    let findings = machine["findings"].as_array().context("no findings")?;
    let id = |finding: &Value| {
        ensure!(finding["verdict"] == "warning", "{finding}");
        Ok(finding["id"].as_str().context("no id")?.to_owned())
    };
    findings.iter().map(id).collect()
}
