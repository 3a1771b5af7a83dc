//! A low-level runtime that every user can replace is not run by root; `stasis doctor` reports one
//! that a group can replace.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{PROGRAM, RUNTIME, StasisHost};
use stasis_integration::on_hosts;

const OWN_RUNC: &str = "/opt/own/runc";
const SCRIPT: &str = "#!/bin/sh\nexec /usr/sbin/runc \"$@\"\n";

on_hosts!(who_could_change_it_matters: sid_v2);

fn who_could_change_it_matters(kind: HostKind) -> Result<()> {
    let stasis = StasisHost::of(kind)?;
    let host = &stasis.host;
    host.script(OWN_RUNC, SCRIPT)?;
    stasis.set(OWN_RUNC, "")?;
    ensure!(exposed(&stasis)?.is_empty(), "{:?}", exposed(&stasis)?);

    host.run(&["chmod", "775", "/opt/own"])?;
    let found = exposed(&stasis)?;
    ensure!(found == ["exposed-runc"], "{found:?}");
    host.run(&["chmod", "777", "/opt/own"])?;
    let output = stasis.command(RUNTIME).arg("list").output()?;
    ensure!(!output.status.success(), "it was run");
    let said = String::from_utf8_lossy(&output.stderr);
    let expected = "the low-level runtime /opt/own/runc is not run: all users may change /opt/own";
    assert_contains(&said, &[expected]);
    Ok(())
}

/// Returns the findings about programs that users other than root could change.
fn exposed(stasis: &StasisHost) -> Result<Vec<String>> {
    let output = stasis
        .command(PROGRAM)
        .args(["doctor", "--json"])
        .output()?;
    let found: Value = serde_json::from_slice(&output.stdout)?;
    let findings = found["findings"].as_array().context("no findings")?;
    let ids = findings.iter().filter_map(|finding| finding["id"].as_str());
    let exposed = ids.filter(|id| id.starts_with("exposed-"));
    Ok(exposed.map(str::to_owned).collect())
}
