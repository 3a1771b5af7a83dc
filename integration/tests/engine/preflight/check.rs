//! `stasis check`.

use anyhow::Result;
use serde_json::Value;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::ROOT;
use stasis_integration::host::installed::StasisHost;

use super::{check, start};

pub(crate) fn a_check_says_what_is_in_the_way_or_that_nothing_is(
    stasis: &StasisHost,
) -> Result<()> {
    let (good, _) = start(stasis, "good", "exec /bin/counter 10108", 10108)?;
    let blocked = ": >/dev/gdrdrv; exec 9</dev/gdrdrv; exec /bin/counter 10109";
    let (blocked, _) = start(stasis, "blocked", blocked, 10109)?;
    let (code, stdout, _) = check(stasis, &["--root", ROOT, "good"])?;
    assert_eq!(code, Some(0), "{stdout}");
    assert_contains(
        &stdout,
        &["counter: RUNNING, GPU-", "a checkpoint would begin"],
    );
    let (code, stdout, _) = check(stasis, &["--root", ROOT, "blocked"])?;
    assert_eq!(code, Some(1), "{stdout}");
    assert_contains(
        &stdout,
        &[
            "gdrdrv: process",
            "way out: ",
            "a checkpoint would be refused",
        ],
    );
    let (code, stdout, _) = check(stasis, &["--root", ROOT, "--json", "blocked"])?;
    assert_eq!(code, Some(1));
    let report: Value = serde_json::from_str(&stdout)?;
    assert_eq!(report["checkpointable"], false);
    assert_eq!(report["blockers"][0]["kind"], "gdrdrv");
    assert_eq!(report["blockers"][0]["pid"], blocked.pid()?);
    assert_eq!(report["processes"][0]["cuda"], "RUNNING");
    assert_eq!(report["processes"][0]["pid_inside"], 1);

    let (code, _, stderr) = check(stasis, &["--root", ROOT, "nothing"])?;
    assert_eq!(code, Some(2));
    assert_contains(
        &stderr,
        &[
            "no running container has the id or name nothing",
            "/run/bundles",
        ],
    );
    assert_eq!(check(stasis, &["nothing"])?.0, Some(2));
    assert_eq!(check(stasis, &[])?.0, Some(2));
    // The driver would never answer for a stopped process.
    stasis.host.stop(&good.pid()?.to_string())?;
    let (code, stdout, _) = check(stasis, &["--root", ROOT, "good"])?;
    assert_eq!(code, Some(1));
    assert_contains(&stdout, &["stopped by a signal"]);
    stasis.run(&["kill", "-CONT", &good.pid()?.to_string()])?;
    assert_eq!(stasis.ask(10108)?.as_deref(), Some("102"));
    what_a_checkpoint_calls_is_looked_for(stasis)?;
    for bundle in [good, blocked] {
        bundle.delete()?;
    }
    an_engines_container_is_found(stasis)
}

/// Without CRIU, or the low-level runtime, no checkpoint begins.
fn what_a_checkpoint_calls_is_looked_for(stasis: &StasisHost) -> Result<()> {
    for (program, kind) in [("criu", "criu"), ("runc", "low-level-runtime")] {
        let path = stasis.run_for_text(&["sh", "-c", "command -v $0", program])?;
        let (path, away) = (path.trim(), "/root/away");
        stasis.run(&["mv", path, away])?;
        let answer = check(stasis, &["--root", ROOT, "--json", "good"]);
        stasis.run(&["mv", away, path])?;
        let (code, stdout, _) = answer?;
        let report: Value = serde_json::from_str(&stdout)?;
        assert_eq!((code, &report["kind"]), (Some(1), &kind.into()), "{stdout}");
    }
    assert_eq!(check(stasis, &["--root", ROOT, "good"])?.0, Some(0));
    Ok(())
}

/// By its id alone, in containerd's directory.
fn an_engines_container_is_found(stasis: &StasisHost) -> Result<()> {
    stasis.ctr_run("found", &[], &["/bin/counter", "10110"])?;
    stasis.ask_until_up(10110)?;
    let (code, stdout, errors) = check(stasis, &["found"])?;
    assert_eq!(code, Some(0), "{stdout}{errors}");
    assert_contains(&stdout, &["container found (/run/containerd/runc/default)"]);
    assert_eq!(
        check(stasis, &["fou"])?.0,
        Some(0),
        "the beginning of its id"
    );
    stasis.ctr_remove("found")
}
