//! A CRIU that stasis does not support: `stasis doctor` reports it, and checkpoints are refused.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{PROGRAM, StasisHost};
use stasis_integration::{needs, on_hosts};

const PORT: u16 = 10000;
/// The first CRIU in the runtime's PATH.
const CRIU: &str = "/usr/local/sbin/criu";

on_hosts!(checkpoints_are_refused: trixie_hybrid, trixie_v2, sid_v2);

/// How CRIU answers `--version`, the findings of `stasis doctor` about CRIU, and the refusal.
const CASES: [(&str, &[&str], &str); 2] = [
    // Such as a home-built one.
    (
        "exit 1",
        &["criu-unknown"],
        "CRIU does not report its version",
    ),
    (
        "echo Version: 3.19; exit 0",
        &["criu-version"],
        "CRIU 3.19 is too old; install 4.0 or newer",
    ),
];

fn checkpoints_are_refused(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    let job = Bundle::make(stasis, "job", &["/bin/memcheck", "24", "10000"])?;
    job.comes_up(PORT, "ok 0")?;
    finds(stasis, &[])?;
    for (answer, findings, says) in CASES {
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = --version ] && {{ {answer}; }}\nexec /usr/sbin/criu \"$@\"\n"
        );
        stasis.script(CRIU, &script)?;
        finds(stasis, findings)?;
        let said = job.checkpoint_fails("image", &["--leave-running"])?;
        assert_contains(&said, &["refused [criu]", says, "nothing was changed"]);
    }
    stasis.run(&["rm", CRIU])?;
    ensure!(stasis.ask(PORT)?.as_deref() == Some("ok 1"));
    job.delete()
}

fn finds(stasis: &StasisHost, findings: &[&str]) -> Result<()> {
    let mut command = stasis.command(PROGRAM);
    let output = command.args(["doctor", "--json"]).output()?;
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let all = report["findings"].as_array().context("no findings")?;
    let wrong = all.iter().filter(|finding| finding["verdict"] != "ok");
    let wrong = wrong.filter_map(|finding| finding["id"].as_str());
    let found: Vec<_> = wrong
        .filter(|id| ["criu-plugin", "criu-unknown", "criu-version"].contains(id))
        .collect();
    ensure!(found == findings, "{found:?} of {report}");
    Ok(())
}
