//! `stasis check` names exec sessions, and the settings may refuse them.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stasis_engine::error::kind::{Kind, State};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::ROOT;
use stasis_integration::host::installed::{PROGRAM, StasisHost};

use super::{EXEC_PORT, PORT, answers, counters, exec, start};

pub(crate) fn the_settings_may_refuse(stasis: &StasisHost) -> Result<()> {
    let job = counters(stasis, "refused")?;
    let check = |option: &[&str]| -> Result<(bool, String)> {
        let mut command = stasis.command(PROGRAM);
        let command = command.args(["check", "--root", ROOT]).args(option);
        let output = command.arg("refused").output()?;
        let stdout = String::from_utf8(output.stdout)?;
        Ok((output.status.success(), stdout))
    };
    let (would_begin, stdout) = check(&[])?;
    assert!(would_begin, "{stdout}");
    assert_contains(
        &stdout,
        &[
            "exec-session: process",
            "(counter)",
            "way out",
            "a checkpoint would begin",
        ],
    );
    let (_, stderr) = check(&["--json"])?;
    let report: Value = serde_json::from_str(&stderr)?;
    let sessions = |report: &Value| -> Vec<bool> {
        let processes = report["processes"].as_array().into_iter().flatten();
        processes.map(|each| each["exec"] == true).collect()
    };
    assert_eq!(sessions(&report), [false, true], "{report}");

    let low_level = &stasis.low_level;
    stasis.set(low_level, "preflight.exec = \"refuse\"\n")?;
    let (would_begin, stdout) = check(&[])?;
    assert!(!would_begin, "{stdout}");
    let message = job.checkpoint_fails("refused", &[])?;
    assert_contains(
        &message,
        &[
            "exec-session",
            "(counter)",
            "preflight.exec",
            "nothing was changed",
        ],
    );
    assert!(!job.image_path("refused").exists());
    answers(stasis, "102", Some("102"))?;
    // No process is lost by a checkpoint that leaves the container running.
    job.checkpoint("left", &["--leave-running"])?;
    answers(stasis, "103", Some("103"))?;
    job.delete()
}

/// The setting refuses exec sessions until the dump begins, with CUDA or without.
pub(crate) fn the_settings_refuse_one_that_starts_later(stasis: &StasisHost) -> Result<()> {
    let low_level = &stasis.low_level;
    stasis.set(low_level, "preflight.exec = \"refuse\"\n")?;
    for (id, call, command) in [
        ("late-lock", "lock", ["/bin/counter", "10001"].as_slice()),
        ("late-gpu", "checkpoint", &["/bin/counter", "10001"]),
        ("late-plain", "checkpoint", &["/bin/plain", "10001", "4"]),
    ] {
        let job = start(stasis, id, &["/bin/counter", "10000"])?;
        job.checkpoint("image", &["--leave-running"])?;
        stasis.hold_driver(&format!("{call} {id}"), "first")?;
        let checkpoint = job.begin_checkpoint("image", &[])?;
        stasis.until_driver_is_called()?;
        exec(stasis, &job, command)?;
        stasis.let_driver_go("first")?;
        let output = checkpoint.wait_with_output()?;
        let stderr = String::from_utf8(output.stderr)?;
        ensure!(!output.status.success(), "{call}: {command:?} was ended");
        assert_contains(&stderr, &["exec-session", "preflight.exec", "with its GPU"]);
        let failure = job.failure()?.context("nothing was reported")?;
        assert_eq!(failure.kind, Some(Kind::Blocked), "{stderr}");
        assert_eq!(failure.state, Some(State::Unharmed), "{stderr}");
        assert_eq!(stasis.ask(PORT)?.as_deref(), Some("102"));
        assert!(stasis.ask(EXEC_PORT)?.is_some(), "the session has ended");
        job.delete()?;
        job.restore("image")?;
        assert_eq!(stasis.ask(PORT)?.as_deref(), Some("102"));
        job.delete()?;
    }
    Ok(())
}
